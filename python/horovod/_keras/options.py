"""The options of a distributed optimizer of Keras."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from horovod._common.gradient_options import check_arguments
from horovod._common.native import core
from horovod.common.process_sets import ProcessSet, global_process_set

__all__ = ["Options", "reduction_of"]


@dataclass(frozen=True)
class Options:
    """Stored in the class of an optimizer, so that from_config() makes one like it. ValueError for wrong options."""

    compression: Any
    name: str | None = None
    device_dense: str = ""
    device_sparse: str = ""
    sparse_as_dense: bool = False
    gradient_predivide_factor: float = 1.0
    op: int = core.REDUCE_AVERAGE
    backward_passes_per_step: int = 1
    average_aggregated_gradients: bool = False
    num_groups: int = 0
    groups: Any = None
    process_set: ProcessSet = global_process_set
    scale_local_gradients: bool = True
    local_variables: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        if self.op not in (core.REDUCE_AVERAGE, core.REDUCE_SUM):
            raise ValueError("op currently only supports Average and Sum")
        groups = check_arguments(self.op, self.gradient_predivide_factor, self.num_groups, self.groups)
        object.__setattr__(self, "groups", groups)
        if self.backward_passes_per_step <= 0:
            raise ValueError(f"backward_passes_per_step must be at least 1, got {self.backward_passes_per_step}")

    @property
    def factors(self) -> tuple[float, float]:
        """The factors of gradients before and after the sum: prescale and postscale."""
        factor = float(self.gradient_predivide_factor)
        return (1.0 / factor, factor)


def reduction_of(op: int | None, average: bool | None) -> int:
    """The reduction of the arguments `op` and `average` of allreduce(). ValueError if both are given."""
    if average is None:
        return core.REDUCE_AVERAGE if op is None else op
    if op is not None:
        raise ValueError("The op parameter supersedes average. Please provide only one of them: give average=None.")
    return core.REDUCE_AVERAGE if average else core.REDUCE_SUM
