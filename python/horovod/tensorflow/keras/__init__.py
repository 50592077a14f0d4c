"""Horovod for tf.keras: `import horovod.tensorflow.keras as hvd`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod._common.keras_checks import require_tensorflow_backend, tolerate_old_compile_argument
from horovod._keras import create_distributed_optimizer, make_options, value_functions
from horovod._keras.value_functions import allgather, broadcast, broadcast_global_variables, reducescatter
from horovod.common.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from horovod.tensorflow.compression import Compression, Compressor
from horovod.tensorflow.mpi_ops import (
    Average,
    Sum,
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    rocm_built,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)

from horovod.tensorflow.keras import callbacks, elastic  # isort: skip

require_tensorflow_backend(tf.keras)
# Now, not with the first optimizer: model.compile(hvd.DistributedOptimizer(...)) looks compile up before that exists.
if str(getattr(tf.keras, "__version__", "")).startswith("3."):
    tolerate_old_compile_argument()

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
    """An optimizer like `optimizer` whose gradients are those of all ranks of the set, for model.compile() and fit().

    It is a new one with the same configuration: state of `optimizer` is not taken over. `backward_passes_per_step`: how
    many gradients are added up before they are reduced; `average_aggregated_gradients` divides by that. `groups`: a
    number of groups, or lists of variables, that are reduced together. ValueError for arguments that do not go
    together.
    """
    return create_distributed_optimizer(
        optimizer,
        make_options(
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
    """Reduces anything that tf.constant takes over all ranks."""
    return value_functions.allreduce(value, name, average, prescale_factor, postscale_factor, op, compression)


def load_model(
    filepath: Any,
    custom_optimizers: Sequence[Any] | None = None,
    custom_objects: dict[str, Any] | None = None,
    compression: type[Compressor] = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """Loads a saved model; its optimizer, with all its state, becomes a hvd.DistributedOptimizer.

    `custom_optimizers` and `custom_objects`: classes that the file names and Keras does not know. `legacy_opts` is
    accepted: the optimizer is whatever the file says.
    """
    del legacy_opts
    options = make_options(compression=compression)
    return value_functions.load_model(tf.keras, filepath, custom_optimizers, custom_objects, options)
