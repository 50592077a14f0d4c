"""Horovod for Keras: `import horovod.keras as hvd`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras as _keras

from horovod._keras import create_distributed_optimizer, make_options, value_functions
from horovod._keras.value_functions import allgather, broadcast, broadcast_global_variables, reducescatter
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow._local import local_layer_variables
from horovod.tensorflow.compression import Compression, Compressor
from horovod.tensorflow.mpi_ops import (
    Adasum,
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

from horovod.keras import callbacks  # isort: skip

__all__ = [
    "init",
    "shutdown",
    "size",
    "local_size",
    "cross_size",
    "rank",
    "local_rank",
    "cross_rank",
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
    compression: type[Compressor] = Compression.none,
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
        make_options(
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
    compression: type[Compressor] = Compression.none,
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
    compression: type[Compressor] = Compression.none,
) -> Any:
    """Reduces anything that tf.constant takes over all ranks; `op` needs average=None."""
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
    return value_functions.load_model(_keras, filepath, custom_optimizers, custom_objects, options)
