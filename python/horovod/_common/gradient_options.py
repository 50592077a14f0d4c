"""Options that mean the same in the optimizers and tapes of every framework."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from horovod._common.native import core
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.util import split_list

__all__ = ["Options", "Plan", "check_arguments", "in_places", "plan_groups"]

Plan = tuple[tuple[int, ...], ...]  # positions that are reduced together; () where each is reduced alone


def _users_level() -> int:
    """The `stacklevel` of a warning of the caller that shows the user's line, however many functions of ours lie
    between; those that dataclasses make have our names, too, but no file."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "horovod":
        level, frame = level + 1, frame.f_back
    return level


def check_arguments(op: int, gradient_predivide_factor: float, num_groups: int, groups: Any) -> Any:
    """Checks the arguments that optimizers and tapes share. Returns `groups`, or `num_groups`, its deprecated form."""
    if op != core.REDUCE_AVERAGE and gradient_predivide_factor != 1.0:
        raise ValueError(
            f"gradient_predivide_factor={gradient_predivide_factor} is not supported with op != hvd.Average"
        )
    if num_groups != 0:
        warnings.warn("num_groups has been replaced by groups", DeprecationWarning, stacklevel=_users_level())
        groups = num_groups if groups is None else groups
    is_number = isinstance(groups, int) and not isinstance(groups, bool) and groups > 0
    if groups is not None and not isinstance(groups, list) and not is_number:
        raise ValueError(f"groups should be a positive integer or a list of lists of variables, got {groups!r}")
    wrong = [group for group in groups if not isinstance(group, (list, tuple))] if isinstance(groups, list) else []
    if wrong:
        raise ValueError(
            f"groups should be a positive integer or a list of lists of variables, got a list with {wrong[0]!r}"
        )
    return groups


@dataclass(frozen=True)
class Options:
    """Those of TensorFlow and Keras. ValueError where check_arguments() has one.

    Stored in the class of an optimizer of Keras, so that from_config() makes one like it.
    """

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
        groups = check_arguments(self.op, self.gradient_predivide_factor, self.num_groups, self.groups)
        object.__setattr__(self, "groups", groups)

    @property
    def factors(self) -> tuple[float, float]:
        """The factors of gradients before and after the sum: prescale and postscale."""
        factor = float(self.gradient_predivide_factor)
        return (1.0 / factor, factor)


def plan_groups(groups: Any, variables: Sequence[Any], key: Callable[[Any], Any]) -> Plan:
    """Which variables are reduced together; one that no group names is reduced alone. `key` identifies a variable."""
    if groups is None:
        return ()
    if isinstance(groups, int):
        return tuple(tuple(part) for part in split_list(range(len(variables)), groups) if part)
    positions = {key(variable): position for position, variable in enumerate(variables)}
    planned = [tuple(positions[key(one)] for one in group if key(one) in positions) for group in groups]
    used = {position for group in planned for position in group}
    return tuple([group for group in planned if group] + [(i,) for i in range(len(variables)) if i not in used])


def in_places(values: Iterable[Any], positions: Sequence[int], count: int) -> list[Any]:
    """A list of `count` elements: the values in their positions, and None."""
    result: list[Any] = [None] * count
    for position, value in zip(positions, values, strict=True):
        result[position] = value
    return result
