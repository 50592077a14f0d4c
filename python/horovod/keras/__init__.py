"""Horovod for Keras: `import horovod.keras as hvd`, on whatever backend Keras computes with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras as _keras

from horovod._common.keras_checks import tolerate_old_compile_argument
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.keras import _backends

_backend = _backends.load(_keras)
tolerate_old_compile_argument()  # before a script looks model.compile up
_basics = _backend.basics

init = _basics.init
shutdown = _basics.shutdown
is_initialized = _basics.is_initialized
rank = _basics.rank
size = _basics.size
local_rank = _basics.local_rank
local_size = _basics.local_size
cross_rank = _basics.cross_rank
cross_size = _basics.cross_size
is_homogeneous = _basics.is_homogeneous
mpi_threads_supported = _basics.mpi_threads_supported
mpi_enabled = _basics.mpi_enabled
mpi_built = _basics.mpi_built
gloo_enabled = _basics.gloo_enabled
gloo_built = _basics.gloo_built
nccl_built = _basics.nccl_built
ddl_built = _basics.ddl_built
ccl_built = _basics.ccl_built
cuda_built = _basics.cuda_built
rocm_built = _basics.rocm_built
start_timeline = _basics.start_timeline
stop_timeline = _basics.stop_timeline

Average = _basics.Average
Sum = _basics.Sum
Adasum = _basics.Adasum

Compression = _backend.Compression
allgather = _backend.allgather
broadcast = _backend.broadcast
broadcast_global_variables = _backend.broadcast_global_variables
reducescatter = _backend.reducescatter

from horovod.keras import callbacks, elastic  # noqa: E402  callbacks asks for the backend again

__all__ = [
    "init",
    "shutdown",
    "size",
    "local_size",
    "cross_size",
    "rank",
    "local_rank",
    "cross_rank",
    "is_homogeneous",
    "is_initialized",
    "start_timeline",
    "stop_timeline",
    "mpi_threads_supported",
    "mpi_enabled",
    "mpi_built",
    "gloo_enabled",
    "gloo_built",
    "nccl_built",
    "ddl_built",
    "ccl_built",
    "cuda_built",
    "rocm_built",
    "Compression",
    "Average",
    "Sum",
    "Adasum",
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
    return _backend.create_distributed_optimizer(
        optimizer,
        _backend.make_options(
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
    variables = _backend.local_layer_variables(local_layers, "PartialDistributedOptimizer")
    return _backend.create_distributed_optimizer(
        optimizer,
        _backend.make_options(
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
    return _backend.allreduce(value, name, average, prescale_factor, postscale_factor, op, compression)


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
    options = _backend.make_options(compression=compression)
    return _backend.load_model(_keras, filepath, custom_optimizers, custom_objects, options)
