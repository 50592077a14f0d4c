"""How a distributed optimizer of Keras on TensorFlow is asked to work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from horovod._common.gradient_options import check_arguments
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow._collectives import AVERAGE, SUM
from horovod.tensorflow.compression import Compression, Compressor

__all__ = ["Options", "make_options"]


@dataclass(frozen=True)
class Options:
    """How a distributed optimizer was asked to work. Kept by its class, so that from_config() makes another like it."""

    name: str | None
    device_dense: str
    device_sparse: str
    compression: type[Compressor]
    sparse_as_dense: bool
    op: int
    gradient_predivide_factor: float
    groups: Any
    backward_passes_per_step: int
    average_aggregated_gradients: bool
    process_set: ProcessSet
    scale_local_gradients: bool
    local_variables: tuple[Any, ...] = ()


def make_options(
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = AVERAGE,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
    local_variables: tuple[Any, ...] = (),
) -> Options:
    """Checked options. ValueError for what does not go together."""
    if op not in (AVERAGE, SUM):
        raise ValueError("op currently only supports Average and Sum")
    groups = check_arguments(op, gradient_predivide_factor, num_groups, groups)
    if backward_passes_per_step <= 0:
        raise ValueError(f"backward_passes_per_step must be at least 1, got {backward_passes_per_step}")
    return Options(
        name, device_dense, device_sparse, compression, sparse_as_dense, op, gradient_predivide_factor, groups,
        backward_passes_per_step, average_aggregated_gradients, process_set, scale_local_gradients, local_variables,
    )  # fmt: skip
