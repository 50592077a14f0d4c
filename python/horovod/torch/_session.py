"""The torch module's share of the session: its table of handles, and how operations are submitted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch.autograd.graph import increment_version

from horovod._common.handles import HandleTable, Pending
from horovod._common.names import AutomaticNames
from horovod._common.native import core
from horovod._common.session import basics
from horovod.common.process_sets import ProcessSet, _on_removal
from horovod.torch._tensors import CPU, set_id

if TYPE_CHECKING:
    from horovod._core import Handle

__all__ = ["basics", "file", "handles", "in_autograd", "names", "session_number", "submit", "submit_group"]

handles = HandleTable()
names = AutomaticNames()
_pending = handles.pending


def _after_init(started: bool) -> None:
    if started:
        handles.pending.clear()


def _after_shutdown() -> None:
    handles.restart_numbers()
    names.restart()


basics._add_hooks(_after_init, _after_shutdown)
_on_removal(names.forget)

_enqueue = core.enqueue


def session_number() -> int:
    """Of the session that runs now, in this job; -1 without one. What another one began is over."""
    return core.epoch() if core.is_initialized() else -1


def file(started: tuple[int, Pending]) -> int:
    """Makes an operation that was started known under its number, its public handle."""
    number, pending = started
    _pending[number] = pending
    return number


def submit(
    operation: int,
    prefix: str,
    name: str | None,
    tensor: torch.Tensor,
    dtype: int,
    output: torch.Tensor | None,
    op: int,
    prescale: float,
    postscale: float,
    root_rank: int,
    process_set: ProcessSet,
) -> tuple[int, Handle]:
    """Submits one tensor under `prefix.name` or an automatic name; gives its number and its native handle.

    The result goes to `output`, which is `tensor` for the forms in place and None when the core allocates. Autograd is
    told of what is written in place: a backward pass that needs the old values raises.
    """
    members = set_id(process_set)
    number = handles.next_number()
    data = tensor.data_ptr()
    try:
        native = _enqueue(
            operation,
            f"{prefix}.{name}" if name else names.make(prefix, members),
            data,
            data if output is tensor else 0 if output is None else output.data_ptr(),
            tensor.shape,
            dtype,
            CPU,
            op,
            prescale,
            postscale,
            root_rank,
            members,
            tensor if output is tensor else (tensor, output),
            output,
        )
    except BaseException:
        if not name:
            names.give_back(members)
        handles.give_back(number)
        raise
    if output is tensor:
        increment_version(tensor)
    return number, native


def submit_group(
    operation: int,
    prefix: str,
    name: str | None,
    tensors: Sequence[torch.Tensor],
    dtypes: Sequence[int],
    outputs: Sequence[torch.Tensor | None],
    op: int,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
) -> tuple[int, list[Handle]]:
    """The same for tensors that are negotiated together; all of them are submitted or none."""
    members = set_id(process_set)
    number = handles.next_number()
    if not tensors:
        return number, []
    base = f"{prefix}.{name}" if name else names.make(prefix, members)
    try:
        entries = [
            (
                f"{base}_{index + 1}of{len(tensors)}",
                tensor.data_ptr(),
                0 if output is None else output.data_ptr(),
                tensor.shape,
                dtype,
                CPU,
            )
            for index, (tensor, output, dtype) in enumerate(zip(tensors, outputs, dtypes, strict=True))
        ]
        natives = core.enqueue_group(
            operation, entries, op, prescale, postscale, members, (tensors, outputs), outputs
        )
    except BaseException:
        if not name:
            names.give_back(members)
        handles.give_back(number)
        raise
    for tensor, output in zip(tensors, outputs, strict=True):
        if output is tensor:
            increment_version(tensor)
    return number, natives


def in_autograd(tensors: Sequence[torch.Tensor]) -> bool:
    return torch.is_grad_enabled() and any(isinstance(t, torch.Tensor) and t.requires_grad for t in tensors)
