"""Horovod for tf.keras: `import horovod.tensorflow.keras as hvd`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod._common import session as _session
from horovod._common.gradient_options import Options
from horovod._common.session import *  # noqa: F403
from horovod._common.session import Average, handle_average_backwards_compatibility
from horovod._keras import private, saving
from horovod._keras.checks import require_tensorflow_backend, tolerate_old_compile_argument
from horovod._keras.optimizer import create_distributed_optimizer
from horovod._keras.tensorflow import BACKEND
from horovod.common.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from horovod.tensorflow.compression import Compression, Compressor

from horovod.tensorflow.keras import callbacks, elastic  # isort: skip

require_tensorflow_backend(tf.keras)
private.check(tf.keras)
# Now, not with the first optimizer: model.compile(hvd.DistributedOptimizer(...)) looks compile up before that exists.
if hasattr(tf.keras, "ops"):
    tolerate_old_compile_argument()

allgather = BACKEND.allgather
broadcast = BACKEND.broadcast
broadcast_global_variables = BACKEND.broadcast_global_variables
reducescatter = BACKEND.reducescatter

__all__ = [
    "Compression",
    "ProcessSet",
    "global_process_set",
    "add_process_set",
    "remove_process_set",
    "callbacks",
    "elastic",
    "DistributedOptimizer",
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
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Returns an optimizer like `optimizer` that reduces its gradients over the set, for model.compile() and fit().

    It is a new one with the same class name and configuration: state of `optimizer` is not taken over. Arguments and
    errors as for horovod.tensorflow.DistributedOptimizer(); `op` is Average or Sum.
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
            backward_passes_per_step=backward_passes_per_step,
            average_aggregated_gradients=average_aggregated_gradients,
            num_groups=num_groups,
            groups=groups,
            process_set=process_set,
            scale_local_gradients=scale_local_gradients,
        ),
        BACKEND,
    )


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: type[Compressor] = Compression.none,
) -> Any:
    """Reduces `value`, anything that tf.constant() takes, over all ranks; returns a tensor of the same shape.

    In a TF1 graph returns its value. `average`: the deprecated form of `op`, True or False. Other arguments and errors
    as for horovod.tensorflow.allreduce().
    """
    reduction = handle_average_backwards_compatibility(op, average)
    return BACKEND.allreduce(value, name, reduction, prescale_factor, postscale_factor, compression)


def load_model(
    filepath: Any,
    custom_optimizers: Sequence[Any] | None = None,
    custom_objects: dict[str, Any] | None = None,
    compression: type[Compressor] = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """Returns a saved model whose optimizer, with all its state, is a hvd.DistributedOptimizer.

    `filepath`: as for tf.keras.models.load_model(), or an open h5py.File. Other arguments and errors as for
    horovod.keras.load_model().
    """
    del legacy_opts
    options = Options(compression=compression)
    return saving.load_model(tf.keras, filepath, custom_optimizers, custom_objects, options, BACKEND)
