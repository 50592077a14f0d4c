"""Options that the wrappers of every framework check in the same way."""

from __future__ import annotations

import warnings
from typing import Any

from horovod._common.native import core

__all__ = ["check_arguments"]


def check_arguments(op: int, gradient_predivide_factor: float, num_groups: int, groups: Any) -> Any:
    """Checks what optimizers and tapes have in common; gives `groups` with the old `num_groups` taken in."""
    if op != core.REDUCE_AVERAGE and gradient_predivide_factor != 1.0:
        raise ValueError(
            f"gradient_predivide_factor={gradient_predivide_factor} is not supported with op != hvd.Average"
        )
    if num_groups != 0:
        warnings.warn("num_groups has been replaced by groups", DeprecationWarning, stacklevel=3)
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
