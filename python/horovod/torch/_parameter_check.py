"""Checks that all ranks hold the same parameters before the first step."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch

from horovod import _env
from horovod._common.calls import unscaled
from horovod._common.native import core
from horovod.common.process_sets import ProcessSet
from horovod.torch._allreduce import reduce_now

_MAX = core.REDUCE_MAX
_VARIABLE = "HOROVOD_CHECK_PARAMETERS"
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class ParameterCheck:
    """Compares before the first step, and before every n-th with HOROVOD_CHECK_PARAMETERS=n; 0: never.

    Costs one allreduce of 16 bytes a parameter, and one pass over all parameters. If a rank has joined, its values
    differ rightly, and there is no warning for that step.
    """

    __slots__ = ("_every", "_steps")

    def __init__(self) -> None:
        self._every = _interval()
        self._steps = 0

    def is_due(self) -> bool:
        """Counts a step. Counts differ between ranks after unequal numbers of steps: one rank that is due is enough."""
        self._steps += 1
        return self._steps == 1 if self._every is None else self._every > 0 and (self._steps - 1) % self._every == 0

    def compare(self, named: Sequence[tuple[str, torch.Tensor]], process_set: ProcessSet) -> None:
        """Warns on the first rank of the first parameter that differs. All ranks that have not joined must call it."""
        if not named or process_set.size() == 1:
            return
        name = _first_difference(sorted(named, key=lambda pair: pair[0]), process_set)
        if name is not None and process_set.rank() == 0:
            warnings.warn(
                f"parameter {name} differs between ranks before step {self._steps} of its optimizer: "
                f"hvd.broadcast_parameters was forgotten? ({_VARIABLE}=0 turns this check off)",
                stacklevel=6,
            )


def _interval() -> int | None:
    text = _env.get(_VARIABLE)
    if not text:
        return None
    if not text.isdecimal():
        raise ValueError(f"{_VARIABLE}={text!r}: expected a whole number, 0 or more")
    return int(text)


def _first_difference(named: Sequence[tuple[str, torch.Tensor]], process_set: ProcessSet) -> str | None:
    """The name of the first parameter that differs between ranks; None if there is none, or if a rank has joined."""
    # The maxima of x and of ~x are the greatest and, inverted, the least. The first x is 1 on ranks that take part.
    sums = torch.tensor([1, *(_sum_of_bits(tensor) for _, tensor in named)], device="cpu")
    greatest_of_all = unscaled(_MAX, process_set)
    greatest = reduce_now(torch.cat([sums, ~sums]), f"{named[0][0]}.parameters", greatest_of_all)
    most, least = greatest[: len(sums)], ~greatest[len(sums) :]
    if least[0] != 1:
        return None
    differing = (most != least)[1:].nonzero()
    return named[int(differing[0])][0] if len(differing) > 0 else None


def _sum_of_bits(tensor: torch.Tensor) -> int:
    """Independent of the order in memory: ranks may hold a tensor with other strides."""
    tensor = tensor.detach()
    if tensor.layout is not torch.strided or tensor.is_meta:
        return 0
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return int(tensor.view(_INTEGERS[tensor.element_size()]).sum(dtype=torch.int64))
