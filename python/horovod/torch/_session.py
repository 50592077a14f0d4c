"""The torch module's part of the session: its table of handles, and the submission of operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from horovod._common.calls import Call, Reduction, refuse_unknown_op, set_id
from horovod._common.handles import HandleTable, Pending, PendingGroup
from horovod._common.names import AutomaticNames
from horovod._common.native import core
from horovod._common.session import basics
from horovod.common.process_sets import ProcessSet
from horovod.torch._tensors import (
    SHAPE_KEEPING,
    check,
    check_one_device,
    enqueue_tensor,
    enqueue_tensors,
    guessed_result,
    mark_written,
    new_result,
    place_of,
    result_at_once,
)

if TYPE_CHECKING:
    from horovod._core import Handle, HandleGroup
    from horovod._core import _Tensor as CoreTensor

__all__ = [
    "basics",
    "handles",
    "in_autograd",
    "names",
    "register_handle",
    "run",
    "run_differentiably",
    "session_number",
    "submit",
    "submit_reduced",
    "submit_group",
]

Finish = Callable[[Any], Any]

handles = HandleTable()
names = AutomaticNames()
_pending = handles.pending


def _after_init(started: bool) -> None:
    if started:
        handles.pending.clear()


basics._add_hooks(_after_init, handles.restart_numbers)

_ADASUM = core.REDUCE_ADASUM


def session_number() -> int:
    """The number of the running session in this job, -1 without one. Operations of other sessions have ended."""
    return core.epoch() if core.is_initialized() else -1


def register_handle(started: tuple[int, Pending]) -> int:
    """Enters a started operation into the table of handles; returns its number, which is its public handle."""
    number, pending = started
    _pending[number] = pending
    return number


def submit(
    call: Call,
    name: str | None,
    reduction: Reduction,
    tensor: torch.Tensor,
    output: torch.Tensor | None = None,
    is_awaited: bool = False,
) -> tuple[int, Handle]:
    """Submits one tensor under `prefix.name`, or an automatic name; returns its number and its native handle.

    `is_awaited`: the caller waits for it at once.

    The result is written to `output`, which is `tensor` for the forms in place; without it to a new tensor, or, if only
    the core knows the shape, to memory of the core or of guessed_result(). Autograd notices writes in place: a backward
    pass that needs the old values raises. Takes a few microseconds, most of them in the core.
    """
    op, prescale, postscale = reduction.op, reduction.prescale, reduction.postscale
    return submit_reduced(call, name, op, prescale, postscale, reduction.process_set, tensor, output, is_awaited)


def submit_reduced(
    call: Call,
    name: str | None,
    op: int,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
    tensor: torch.Tensor,
    output: torch.Tensor | None = None,
    is_awaited: bool = False,
) -> tuple[int, Handle]:
    """The same without a Reduction, for what programs call in bursts: to make one takes a fifth of a call's Python."""
    process_set_id = process_set.process_set_id
    if process_set_id is None:
        check(call, Reduction(op, prescale, postscale, process_set), tensor)  # the tensor's error is told first
        process_set_id = set_id(process_set)
    number = handles.next_number()
    wire_name = f"{call.prefix}.{name}" if name else names.make(call.prefix, process_set_id)
    try:
        native, target = None, output
        if op != _ADASUM:
            if output is None and call.kind in SHAPE_KEEPING:
                target = result_at_once(tensor)
            if target is not None:
                # fmt: off
                native = enqueue_tensor(
                    call.kind, wire_name, call.root_rank, tensor, target,
                    op, prescale, postscale, process_set_id, is_awaited,
                )
                # fmt: on
        if native is None:
            reduction = Reduction(op, prescale, postscale, process_set)
            core_tensor, output = _described(call, reduction, tensor, target)
            keep = tensor if output is tensor else (tensor, output)
            native = core.enqueue(call.named(wire_name), core_tensor, reduction.for_core(), keep, output, is_awaited)
    except BaseException as error:
        _release_numbers(name, wire_name, process_set_id, number)
        if isinstance(error, (TypeError, ValueError)):
            refuse_unknown_op(op, call.prefix)
        raise
    if output is tensor:
        mark_written((tensor,))
    return number, native


def _described(
    call: Call, reduction: Reduction, tensor: torch.Tensor, output: torch.Tensor | None
) -> tuple[CoreTensor, torch.Tensor | None]:
    """The tensor as the core takes it, and the output: a new one if none was given, or where its shape is guessed."""
    dtype = check(call, reduction, tensor)
    data = tensor.data_ptr()
    target: int | tuple[int, torch.Size] = 0
    if output is tensor:
        target = data
    elif call.kind in SHAPE_KEEPING:
        output = new_result(tensor, dtype) if output is None else output
        target = output.data_ptr()
    elif (output := guessed_result(call, reduction, tensor)) is not None:
        target = output.data_ptr(), output.shape
    return (data, target, tensor.shape, dtype, place_of(tensor)), output


def submit_group(
    call: Call, name: str | None, reduction: Reduction, tensors: Sequence[torch.Tensor], in_place: bool = False
) -> tuple[int, HandleGroup]:
    """Submits tensors that are negotiated together, all of them or none; returns the group's number and its handles."""
    tensors = list(tensors)
    is_read_by_core = in_place and reduction.op != _ADASUM
    described = None if is_read_by_core else _group_described(call, reduction, tensors, in_place)
    core_reduction = reduction.for_core()
    *_, process_set_id = core_reduction
    number = handles.next_number()
    if not tensors:
        return number, core.HandleGroup()
    wire_name = f"{call.prefix}.{name}" if name else names.make(call.prefix, process_set_id)
    core_call = call.named(wire_name)
    try:
        natives = enqueue_tensors(core_call, tensors, core_reduction) if is_read_by_core else None
        if natives is None:
            entries, outputs = described or _group_described(call, reduction, tensors, in_place)
            natives = core.enqueue_group(core_call, entries, core_reduction, (tensors, outputs), outputs)
    except BaseException as error:
        _release_numbers(name, wire_name, process_set_id, number)
        if isinstance(error, (TypeError, ValueError)):
            refuse_unknown_op(reduction.op, call.prefix)
        raise
    if in_place:
        mark_written(tensors)
    return number, natives


def _group_described(
    call: Call, reduction: Reduction, tensors: list[torch.Tensor], in_place: bool
) -> tuple[list[CoreTensor], list[torch.Tensor | None]]:
    check_one_device(tensors, call.prefix)
    described = [_described(call, reduction, tensor, tensor if in_place else None) for tensor in tensors]
    return [entry for entry, _ in described], [output for _, output in described]


def _release_numbers(name: str | None, wire_name: str, process_set_id: int, number: int) -> None:
    """After a refused call: the next one gets its name and its number, as on ranks that did not try it."""
    if not name:
        names.release(process_set_id, wire_name)
    handles.release(number)


def run(
    call: Call, name: str | None, reduction: Reduction, tensors: Sequence[torch.Tensor], finish: Finish | None = None
) -> list[Any]:
    """Submits one tensor alone, or those of a group together, and waits; returns a list of results.

    `finish` makes a result from the native handle if only the core knew its shape.
    """
    if call.is_group:
        natives = submit_group(call, name, reduction, tensors)[1]
        return natives.wait() if finish is None else PendingGroup(natives, finish).wait()
    native = submit(call, name, reduction, tensors[0], is_awaited=True)[1]
    result = native.wait()
    return [result if finish is None else finish(native)]


def run_differentiably(
    function: type[torch.autograd.Function],
    call: Call,
    name: str | None,
    reduction: Reduction,
    tensors: Sequence[torch.Tensor],
    finish: Finish | None = None,
) -> list[Any]:
    """run(), by `function` of autograd if a tensor requires a gradient: its forward() is to do the same."""
    if in_autograd(tensors):
        return list(function.apply(call, name, reduction, *tensors))  # type: ignore[no-untyped-call]
    return run(call, name, reduction, tensors, finish)


def in_autograd(tensors: Sequence[torch.Tensor]) -> bool:
    return torch.is_grad_enabled() and any(isinstance(t, torch.Tensor) and t.requires_grad for t in tensors)
