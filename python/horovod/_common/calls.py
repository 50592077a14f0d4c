"""The values that every submission is made of: what to do (Call), and how and among whom to reduce (Reduction).

Nobody changes one after it was made.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from horovod._common.native import core
from horovod.common.process_sets import ProcessSet

__all__ = [
    "CPU",
    "Call",
    "OP_NAMES",
    "Reduction",
    "no_reduction",
    "refuse_unknown_op",
    "run_without_tensor",
    "set_id",
    "unscaled",
]

CPU = -1  # a device
_NO_TENSOR = (0, 0, (), core.DTYPE_UINT8, CPU)
_NAMES = ("Average", "Sum", "Adasum", "Min", "Max", "Product")
OP_NAMES = {getattr(core, f"REDUCE_{name.upper()}"): name for name in _NAMES}


def set_id(process_set: ProcessSet, caller: str = "") -> int:
    """The id of a registered process set. ValueError, which names the caller, for a set that is not registered."""
    process_set_id = process_set.process_set_id
    if process_set_id is None:
        prefix = f"{caller}: " if caller else ""
        raise ValueError(f"{prefix}{process_set} is not registered: pass it to init() or add_process_set() first")
    return process_set_id


@dataclass(slots=True)
class Reduction:
    """How elements are combined: each times `prescale`, then `op` over the ranks of the set, then times `postscale`.

    Operations that only move elements use nothing but the process set.
    """

    op: int
    prescale: float
    postscale: float
    process_set: ProcessSet

    def for_core(self) -> tuple[int, float, float, int]:
        """As the core takes it. ValueError for a process set that is not registered."""
        return self.op, self.prescale, self.postscale, set_id(self.process_set)


def refuse_unknown_op(op: Any, caller: str) -> None:
    """ValueError or TypeError for what is no reduction. Of single calls those that failed are enough to look at."""
    is_number = hasattr(op, "__index__")
    if is_number and operator.index(op) in OP_NAMES:
        return
    error = ValueError if is_number else TypeError
    names = ", ".join(f"hvd.{name}" for name in OP_NAMES.values())
    raise error(f"{caller}: op={op!r}, expected one of {names}") from None


def unscaled(op: int, process_set: ProcessSet) -> Reduction:
    """A reduction whose factors are 1."""
    return Reduction(op, 1.0, 1.0, process_set)


def no_reduction(process_set: ProcessSet) -> Reduction:
    """For operations that only move elements."""
    return unscaled(core.REDUCE_SUM, process_set)


@dataclass(slots=True)
class Call:
    """What to do: a kind of operation (core.OP_...) and its `prefix` in names and errors.

    The prefix of tensors that are negotiated together begins with `grouped_`. `root_rank`: the global rank that
    broadcasts. `splits`: how many rows go to each rank of the set in an alltoall; equal shares if empty. The name that
    matches calls between ranks is not part of it, so that one value serves many calls.
    """

    kind: int
    prefix: str
    root_rank: int = -1
    splits: Sequence[int] = ()

    @property
    def is_group(self) -> bool:
        return self.prefix.startswith("grouped_")

    def named(self, wire_name: str) -> tuple[int, str, int, Sequence[int]]:
        """As the core takes it, with the full name: prefix included."""
        return self.kind, wire_name, self.root_rank, self.splits


def run_without_tensor(kind: int, name: str, process_set_id: int = 0) -> int:
    """Runs an operation that has no tensor, a barrier or a join, and waits for it; returns its integer result."""
    handle = core.enqueue((kind, name, -1, ()), _NO_TENSOR, (core.REDUCE_SUM, 1.0, 1.0, process_set_id), None)
    handle.wait()
    return handle.value()
