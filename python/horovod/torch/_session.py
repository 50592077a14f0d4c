"""The torch module's share of the session: its basics, its table of handles, and how operations are submitted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from horovod._common.handles import HandleTable, Pending
from horovod._common.native import core
from horovod.common import util
from horovod.common.basics import HorovodBasics
from horovod.common.process_sets import ProcessSet, _setup
from horovod.torch._tensors import set_id

basics = HorovodBasics(__file__, "mpi_lib_v2")
handles = HandleTable()

basics._set_hooks(on_init=handles.pending.clear, on_shutdown=handles.restart_numbers)
_setup(basics)

handle_average_backwards_compatibility = util.get_average_backwards_compatibility_fun(basics)

# One member of a group: wire name, data and output address, shape, type code, device.
Entry = tuple[str, int, int, Sequence[int], int, int]


def file(number: int, pending: Pending) -> int:
    """Makes a pending operation known under its handle."""
    handles.pending[number] = pending
    return number


def not_built(name: str) -> NotImplementedError:
    """The error of a public function that has no implementation yet."""
    return NotImplementedError(f"horovod.torch.{name} is not built yet")


def group_names(operation: str, name: str | None, number: int, count: int) -> list[str]:
    base = f"{operation}.{name}" if name else f"{operation}.noname.{number}"
    return [f"{base}_{index + 1}of{count}" for index in range(count)]


def enqueue_group(
    operation: int,
    entries: list[Entry],
    op: int,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
    keep: Any,
) -> list[Any]:
    if not entries:
        return []
    return core.enqueue_group(operation, entries, op, prescale, postscale, set_id(process_set), keep)


def in_autograd(tensors: Sequence[torch.Tensor]) -> bool:
    return torch.is_grad_enabled() and any(isinstance(t, torch.Tensor) and t.requires_grad for t in tensors)
