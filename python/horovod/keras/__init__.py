"""Horovod for Keras: `import horovod.keras as hvd`, on whatever backend Keras computes with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras as _keras

from horovod._common import session as _session
from horovod._common.local_variables import local_layer_variables
from horovod._common.session import *  # noqa: F403
from horovod._common.session import Average
from horovod._keras import private, saving
from horovod._keras.backend import load
from horovod._keras.checks import tolerate_old_compile_argument
from horovod._keras.optimizer import create_distributed_optimizer
from horovod._keras.options import Options, reduction_of
from horovod.common.process_sets import ProcessSet, global_process_set

_backend: Any = load(_keras)
private.check(_keras)
tolerate_old_compile_argument()  # before a script looks model.compile up

Compression = _backend.Compression
allgather = _backend.allgather
broadcast = _backend.broadcast
broadcast_global_variables = _backend.broadcast_global_variables
reducescatter = _backend.reducescatter

from horovod.keras import callbacks, elastic  # noqa: E402

__all__ = [
    "Compression",
    "global_process_set",
    "callbacks",
    "elastic",
    "DistributedOptimizer",
    "PartialDistributedOptimizer",
    "broadcast_global_variables",
    "allreduce",
    "allgather",
    "broadcast",
    "reducescatter",
    "load_model",
]
__all__ += _session.__all__


def DistributedOptimizer(  # noqa: N802
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    num_groups: int = 0,
    groups: Any = None,
) -> Any:
    """An optimizer like `optimizer` whose gradients are those of all ranks, for model.compile() and fit().

    It is a new one with the same configuration: state of `optimizer` is not taken over. `groups`: a number of groups,
    or lists of variables, that are reduced together. ValueError for arguments that do not go together.
    """
    return create_distributed_optimizer(
        optimizer,
        Options(
            name=name,
            device_dense=device_dense,
            device_sparse=device_sparse,
            compression=compression,
            sparse_as_dense=sparse_as_dense,
            gradient_predivide_factor=gradient_predivide_factor,
            op=op,
            num_groups=num_groups,
            groups=groups,
        ),
        _backend,
    )


def PartialDistributedOptimizer(  # noqa: N802
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """DistributedOptimizer that leaves the gradients of `local_layers`, one layer or several, on this rank.

    The layers must have been built. ValueError for anything but layers.
    """
    variables = local_layer_variables(local_layers, "PartialDistributedOptimizer")
    return create_distributed_optimizer(
        optimizer,
        Options(
            name=name,
            device_dense=device_dense,
            device_sparse=device_sparse,
            compression=compression,
            sparse_as_dense=sparse_as_dense,
            gradient_predivide_factor=gradient_predivide_factor,
            op=op,
            backward_passes_per_step=backward_passes_per_step,
            average_aggregated_gradients=average_aggregated_gradients,
            groups=groups,
            process_set=process_set,
            scale_local_gradients=scale_local_gradients,
            local_variables=tuple(variables),
        ),
        _backend,
    )


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = True,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: Any = Compression.none,
) -> Any:
    """Reduces anything that the backend can make a tensor of over all ranks; `op` needs average=None."""
    return _backend.allreduce(value, name, reduction_of(op, average), prescale_factor, postscale_factor, compression)


def load_model(
    filepath: Any,
    custom_optimizers: Sequence[Any] | None = None,
    custom_objects: dict[str, Any] | None = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """Loads a saved model; its optimizer, with all its state, becomes a hvd.DistributedOptimizer.

    `custom_optimizers` and `custom_objects`: classes that the file names and Keras does not know. `legacy_opts` is
    accepted: the optimizer is whatever the file says.
    """
    del legacy_opts
    options = Options(compression=compression)
    return saving.load_model(_keras, filepath, custom_optimizers, custom_objects, options, _backend)
