"""The values that every submission is made of: what to do (Call), and how and among whom to reduce (Reduction).

Nobody changes one after it was made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from horovod._common.native import core
from horovod.common.process_sets import ProcessSet

__all__ = ["CPU", "Call", "Reduction", "run_without_tensor", "no_reduction", "set_id", "unscaled"]

CPU = -1  # a device
_NO_TENSOR = (0, 0, (), core.DTYPE_UINT8, CPU)  # the tensor of operations without one


def set_id(process_set: ProcessSet) -> int:
    """The id of a registered process set, else ValueError."""
    number = process_set.process_set_id
    if number is None:
        raise ValueError(f"{process_set} is not registered: pass it to init() or add_process_set() first")
    return number


@dataclass(slots=True)
class Reduction:
    """How elements are put together: every one times `prescale`, then `op` over the set's ranks, times `postscale`.

    Operations that only move elements look at the process set alone.
    """

    op: int
    prescale: float
    postscale: float
    process_set: ProcessSet

    def for_core(self) -> tuple[int, float, float, int]:
        """ValueError for a process set that is not registered."""
        return self.op, self.prescale, self.postscale, set_id(self.process_set)


def unscaled(op: int, process_set: ProcessSet) -> Reduction:
    return Reduction(op, 1.0, 1.0, process_set)


def no_reduction(process_set: ProcessSet) -> Reduction:
    """For operations that reduce nothing."""
    return Reduction(core.REDUCE_SUM, 1.0, 1.0, process_set)


@dataclass(slots=True)
class Call:
    """What is done: a kind of operation (core.OP_...), and its word in names and errors.

    For tensors that are negotiated together the word begins with `grouped_`. `root_rank`: the global rank that
    broadcasts. `splits`: how many rows go to each rank of the set in an alltoall; equal shares if empty. The name that
    matches calls between ranks is not part of it: a call without one serves again and again.
    """

    kind: int
    prefix: str
    root_rank: int = -1
    splits: Sequence[int] = ()

    @property
    def is_group(self) -> bool:
        return self.prefix.startswith("grouped_")

    def named(self, wire_name: str) -> tuple[int, str, int, Sequence[int]]:
        """As the core takes it."""
        return self.kind, wire_name, self.root_rank, self.splits


def run_without_tensor(kind: int, name: str, process_set_id: int = 0) -> int:
    """Waits in an operation without a tensor, under one name for all; gives its number."""
    handle = core.enqueue((kind, name, -1, ()), _NO_TENSOR, (core.REDUCE_SUM, 1.0, 1.0, process_set_id), None)
    handle.wait()
    return handle.value()
