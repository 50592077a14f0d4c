"""DistributedOptimizer: chooses the wrapper by the kind of optimizer."""

from __future__ import annotations

import importlib
from typing import Any

import tensorflow as tf

from horovod._common.gradient_options import Options
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow._adasum_optimizer import DistributedAdasumLegacyOptimizer
from horovod.tensorflow._collectives import ADASUM, AVERAGE
from horovod.tensorflow._legacy_optimizer import DistributedLegacyOptimizer
from horovod.tensorflow.compression import Compression, Compressor

__all__ = ["DistributedOptimizer"]


def DistributedOptimizer(  # noqa: N802
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = AVERAGE,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Returns an optimizer like `optimizer` that reduces its gradients over all ranks of the set.

    Arguments, the same on all ranks:
        optimizer: a tf.compat.v1.train.Optimizer, which is wrapped; or an optimizer of Keras 2 or 3, of which a new one
            with the same configuration is made: its state is not taken over.
        name: of the new optimizer, and of its ops.
        use_locking: as of tf.compat.v1.train.Optimizer.
        device_dense, device_sparse: the tf.device of the reductions of tensors and of tf.IndexedSlices.
        compression: Compression.fp16 sends floating-point gradients as float16.
        sparse_as_dense: make tf.IndexedSlices dense first.
        backward_passes_per_step: how many gradients are added up on each rank before they are reduced; with
            `average_aggregated_gradients` the sum is divided by that number.
        op: Average (the default) or Sum; for tf.compat.v1 also Adasum, which combines steps instead of gradients.
        gradient_predivide_factor: f: gradients are multiplied by 1/f before, and by f/N after the sum over N ranks.
        groups: a number of groups, or lists of variables, that are reduced together. `num_groups` is its deprecated
            form.
        process_set: the ranks that take part.
        scale_local_gradients: divide the gradients of local variables, which stay on this rank, by N.

    ValueError: another kind of optimizer, or arguments that are wrong or exclude each other. NotImplementedError:
    Adasum on another set than the global one. The step raises what fails between ranks, as for allreduce().
    """
    options = Options(
        name=name,
        device_dense=device_dense,
        device_sparse=device_sparse,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        backward_passes_per_step=backward_passes_per_step,
        average_aggregated_gradients=average_aggregated_gradients,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        num_groups=num_groups,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )
    if op == ADASUM and average_aggregated_gradients:
        raise ValueError("Adasum does not support average_aggregated_gradients == True")
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        if op == ADASUM:
            name = name or f"DistributedDelta{type(optimizer).__name__}"
            return DistributedAdasumLegacyOptimizer(
                optimizer, name, use_locking, device_dense, compression, backward_passes_per_step, process_set
            )
        name = name or f"Distributed{type(optimizer).__name__}"
        return DistributedLegacyOptimizer(optimizer, name, use_locking, options)
    if op == ADASUM:
        raise ValueError("op == Adasum is not supported yet with Keras")
    keras: Any = importlib.import_module("horovod.tensorflow.keras")
    return keras.create_distributed_optimizer(optimizer, options, keras.BACKEND)
