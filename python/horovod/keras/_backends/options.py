"""The options of a distributed optimizer on Keras 3's own backends, checked."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import keras

from horovod._common.gradient_options import check_arguments
from horovod._common.native import core
from horovod.common.process_sets import ProcessSet, global_process_set

__all__ = ["Options", "local_layer_variables", "make_options", "reduction_of"]


@dataclass(frozen=True)
class Options:
    """How a distributed optimizer was asked to work. Kept by its class, so that from_config() makes another like it."""

    name: str | None
    compression: Any
    op: int
    gradient_predivide_factor: float
    groups: Any
    backward_passes_per_step: int
    average_aggregated_gradients: bool
    process_set: ProcessSet
    scale_local_gradients: bool
    local_variables: tuple[Any, ...]

    @property
    def scales(self) -> tuple[float, float]:
        """What gradients are multiplied with before and after they are added up."""
        factor = float(self.gradient_predivide_factor)
        return (1.0 / factor, factor)


def make_options(
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = None,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = core.REDUCE_AVERAGE,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
    local_variables: tuple[Any, ...] = (),
) -> Options:
    """Checked options. ValueError for what does not go together.

    Devices and sparse_as_dense are accepted: operations run where the gradients are, which are dense.
    """
    del device_dense, device_sparse, sparse_as_dense
    if op not in (core.REDUCE_AVERAGE, core.REDUCE_SUM):
        raise ValueError("op currently only supports Average and Sum")
    groups = check_arguments(op, gradient_predivide_factor, num_groups, groups)
    if backward_passes_per_step <= 0:
        raise ValueError(f"backward_passes_per_step must be at least 1, got {backward_passes_per_step}")
    return Options(
        name, compression, op, gradient_predivide_factor, groups, backward_passes_per_step,
        average_aggregated_gradients, process_set, scale_local_gradients, local_variables,
    )  # fmt: skip


def local_layer_variables(local_layers: Any, caller: str) -> list[Any]:
    """The trainable weights of a Keras layer or of several. ValueError for anything else."""
    if local_layers is None:
        return []
    layer_class = keras.layers.Layer
    layers = [local_layers] if isinstance(local_layers, layer_class) else local_layers
    if not isinstance(layers, Collection) or not all(isinstance(layer, layer_class) for layer in layers):
        raise ValueError(f"{caller}: local_layers must be a Keras layer or a collection of them, got {local_layers!r}")
    return [variable for layer in layers for variable in layer.trainable_weights]


def reduction_of(op: int | None, average: bool | None) -> int:
    """The reduction that the two arguments of allreduce() ask for. ValueError when both do."""
    if average is None:
        return core.REDUCE_AVERAGE if op is None else op
    if op is not None:
        raise ValueError("The op parameter supersedes average. Please provide only one of them: give average=None.")
    return core.REDUCE_AVERAGE if average else core.REDUCE_SUM
