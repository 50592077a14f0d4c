"""Allgather of one or several tensors, and the sparse allreduce that is made of two of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

from horovod._common.handles import PendingCall, PendingGroup
from horovod._common.native import core
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._allreduce import reduce_now
from horovod.torch._grouped_allreduce import reduce_group_now
from horovod.torch._session import file, handles, in_autograd, submit, submit_group
from horovod.torch._tensors import check_one_device, movable

Average = core.REDUCE_AVERAGE
Adasum = core.REDUCE_ADASUM


def _gathered(native: Any) -> tuple[torch.Tensor, list[int]]:
    """The output that the core allocated, and the rows that came from each member."""
    return from_dlpack(native.output_dlpack()), native.received_splits()


def _gathered_tensor(native: Any) -> torch.Tensor:
    return from_dlpack(native.output_dlpack())


def _start_allgather(
    tensor: torch.Tensor, name: str | None, process_set: ProcessSet, finish: Callable[[Any], Any]
) -> tuple[int, PendingCall]:
    dtype = movable(tensor, "allgather")
    number, native = submit(core.OP_ALLGATHER, "allgather", name, tensor, dtype, None, 0, 1.0, 1.0, 0, process_set)
    return number, PendingCall(native, finish)


def _own_offset(rows: Sequence[int], process_set: ProcessSet) -> int:
    """Where this rank's rows begin in a gathered tensor."""
    return sum(rows[: process_set.rank()])


def gather_with_rows(tensor: torch.Tensor, name: str | None, process_set: ProcessSet) -> tuple[torch.Tensor, list[int]]:
    """A blocking allgather that also gives the number of rows of each member. Not differentiable."""
    result: tuple[torch.Tensor, list[int]] = _start_allgather(tensor, name, process_set, _gathered)[1].wait()
    return result


class _Allgather(torch.autograd.Function):
    """Gradient: the average over ranks of the gathered gradient, of which each rank keeps its own rows."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, name: str | None, process_set: ProcessSet) -> Any:
        output, rows = _start_allgather(tensor, name, process_set, _gathered)[1].wait()
        ctx.parameters = (_own_offset(rows, process_set), tensor.shape[0], process_set)
        return output

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        offset, rows, process_set = ctx.parameters
        reduced = reduce_now(grads[0].contiguous(), None, Average, 1.0, 1.0, process_set)
        return reduced.narrow(0, offset, rows), None, None


def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Concatenates the tensors of all ranks along dimension 0, in rank order, into a new tensor. Differentiable.

    Arguments:
        tensor: dense, contiguous, on the CPU, with one or more dimensions. The first may differ between ranks (0 is
            fine); the others and the type may not.
        name: what matches the call between ranks; without it an automatic one is used, which counts unnamed calls, so
            all ranks have to make those in the same order.
        process_set: the ranks that take part, this one among them.

    ValueError: this rank's call is wrong (type, not contiguous, name pending, not a member); nothing was sent.
    HorovodInternalError: ranks disagree on type, shape or arguments (all members get it and can go on), a rank is lost,
    or Horovod is not initialised.
    """
    result: torch.Tensor
    if isinstance(tensor, torch.Tensor) and tensor.requires_grad and torch.is_grad_enabled():
        result = _Allgather.apply(tensor, name, process_set)  # type: ignore[no-untyped-call]
    else:
        result = _start_allgather(tensor, name, process_set, _gathered_tensor)[1].wait()
    return result


def allgather_async(tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set) -> int:
    """Starts an allgather; synchronize(handle) gives the concatenated tensor.

    Returns an int at once. `tensor` must not change until synchronize() has returned. Arguments and errors as for
    allgather(); what fails between ranks is raised by synchronize().
    """
    return file(_start_allgather(tensor, name, process_set, _gathered_tensor))


def _start_grouped_allgather(
    tensors: Sequence[torch.Tensor], name: str | None, process_set: ProcessSet, finish: Callable[[Any], Any]
) -> tuple[int, PendingGroup]:
    tensors = list(tensors)
    check_one_device(tensors, "grouped_allgather")
    dtypes = [movable(tensor, "grouped_allgather") for tensor in tensors]
    number, natives = submit_group(
        core.OP_ALLGATHER,
        "grouped_allgather",
        name,
        tensors,
        dtypes,
        [None] * len(tensors),
        0,
        1.0,
        1.0,
        process_set,
    )
    return number, PendingGroup(natives, finish)


class _GroupedAllgather(torch.autograd.Function):
    """Gradient: as for allgather, with a grouped allreduce."""

    @staticmethod
    def forward(ctx: Any, name: str | None, process_set: ProcessSet, *tensors: torch.Tensor) -> Any:
        gathered = _start_grouped_allgather(tensors, name, process_set, _gathered)[1].wait()
        ctx.process_set = process_set
        ctx.blocks = [
            (_own_offset(rows, process_set), tensor.shape[0])
            for (_, rows), tensor in zip(gathered, tensors, strict=True)
        ]
        return tuple(output for output, _ in gathered)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        whole = [grad.contiguous() for grad in grads]
        reduced = reduce_group_now(whole, None, Average, 1.0, 1.0, ctx.process_set)
        own = (grad.narrow(0, offset, rows) for grad, (offset, rows) in zip(reduced, ctx.blocks, strict=True))
        return None, None, *own


def grouped_allgather(
    tensors: Sequence[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[torch.Tensor]:
    """Allgathers several tensors together; none before every rank has submitted all. Gives a list. Differentiable.

    Every rank passes as many tensors, each as for allgather(): first dimensions may differ between ranks and within the
    group. Other arguments and errors as for allgather().
    """
    if in_autograd(tensors):
        return list(_GroupedAllgather.apply(name, process_set, *tensors))  # type: ignore[no-untyped-call]
    return _start_grouped_allgather(tensors, name, process_set, _gathered_tensor)[1].wait()


def grouped_allgather_async(
    tensors: Sequence[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts a grouped allgather; synchronize(handle) gives the list of concatenated tensors.

    Returns one int for the group at once. The tensors must not change until synchronize() has returned. Arguments and
    errors as for grouped_allgather().
    """
    return file(_start_grouped_allgather(tensors, name, process_set, _gathered_tensor))


def sparse_allreduce_async(
    tensor: torch.Tensor, name: str | None, op: int, process_set: ProcessSet = global_process_set
) -> Callable[[], torch.Tensor]:
    """Starts the reduction of a sparse COO tensor; calling the result waits and gives the sparse tensor.

    After KeyboardInterrupt it may be called again.
    Two allgathers: entries with the same index stay separate until the tensor is coalesced, which adds them up.
    """
    if op == Adasum:
        raise NotImplementedError(
            "sparse_allreduce_async: op=Adasum needs all elements of the gradient; reduce tensor.to_dense() instead"
        )
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.sparse_coo:
        raise ValueError(
            "sparse_allreduce_async: expected a sparse COO tensor, got "
            f"{tensor.layout if isinstance(tensor, torch.Tensor) else type(tensor).__name__}"
        )
    shape = tensor.size()
    rows = tensor._indices().t().contiguous()
    values = tensor._values().contiguous()
    indices_handle = allgather_async(rows, f"{name}.indices" if name else None, process_set)
    values_handle = allgather_async(values, f"{name}.values" if name else None, process_set)

    waiting = [indices_handle, values_handle]
    gathered: list[torch.Tensor] = []

    def finish() -> torch.Tensor:
        while waiting:
            gathered.append(handles.synchronize(waiting[0]))
            del waiting[0]
        all_rows, all_values = gathered
        if op == Average:
            members = process_set.size() or 1
            rounding = None if all_values.is_floating_point() else "trunc"
            all_values = torch.div(all_values, members, rounding_mode=rounding)
        return torch.sparse_coo_tensor(all_rows.t(), all_values, shape, check_invariants=False)

    return finish
