"""From a call's arrays to its results, through MXNet's engine: without waiting where their shapes are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from horovod._common.calls import Call
from horovod.mxnet import _session
from horovod.mxnet._arrays import check_arrays, empty_like, from_core, is_on_host, to_device, to_host, with_rows
from horovod.mxnet._library import RUNS_AT_ONCE, mx, push

__all__ = ["Reduction", "run", "run_late"]

Reduction = tuple[int, float, float, int]  # op, prescale, postscale, id of the process set


def _push(
    call: Call, name: str | None, reduction: Reduction, inputs: Sequence[Any], outputs: Sequence[Any],
    is_group: bool, priority: int,
) -> Any:  # fmt: skip
    """Under `horovod_<operation>.<name>`, or an automatic name, which the next call gets if this one is refused."""
    prefix, process_set_id = f"horovod_{call.prefix}", reduction[3]
    counted = _session.names[call.prefix]
    wire_name = f"{prefix}.{name}" if name else counted.make(prefix, process_set_id)
    try:
        return push(call.named(wire_name), reduction, inputs, outputs, is_group, priority)
    except BaseException:
        if not name:
            counted.release(process_set_id, wire_name)
        raise


def run(
    call: Call, name: str | None, reduction: Reduction, tensors: Sequence[Any], in_place: bool, caller: str,
    priority: int, is_group: bool = False,
) -> list[Any]:  # fmt: skip
    """Pushes a call whose results have the shapes of its arguments, and returns these results without waiting."""
    check_arrays(tensors, caller)
    inputs = to_host(tensors) if in_place else with_rows(to_host(tensors))
    outputs = inputs if in_place else [empty_like(tensor) for tensor in inputs]
    pushed = _push(call, name, reduction, inputs, outputs, is_group, int(priority))
    if RUNS_AT_ONCE:  # it has ended; this engine forgets the errors of asynchronous operations, and no wait would raise
        error = pushed.wait()
        if error is not None:
            raise mx.MXNetError(f"Horovod: {error}")
    if not in_place:
        return to_device(outputs, tensors)
    for sent, tensor in zip(outputs, tensors, strict=True):
        if not is_on_host(tensor):
            sent.copyto(tensor)
    return list(tensors)


def run_late(
    call: Call, name: str | None, reduction: Reduction, tensors: Sequence[Any], caller: str, priority: int,
    is_group: bool = False,
) -> tuple[list[Any], list[int]]:  # fmt: skip
    """Runs a call whose results have shapes that all ranks decide. These, and the rows that an alltoall received."""
    check_arrays(tensors, caller)
    inputs = with_rows(to_host(tensors))
    pushed = _push(call, name, reduction, inputs, [], is_group, int(priority))
    error = pushed.wait()
    if error is not None:
        for tensor in inputs:  # an empty text: the engine left the call out, because of what an input came from
            tensor.wait_to_read()
        raise mx.MXNetError(f"Horovod: {error or caller + ': what an input depends on has failed'}")
    made = [from_core(pushed.output_dlpack(index), tensor) for index, tensor in enumerate(inputs)]
    return to_device(made, tensors), pushed.received_splits()
