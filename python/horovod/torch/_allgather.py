"""Allgather of one or several tensors, and the sparse allreduce, which consists of two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from horovod._common.calls import Call, Reduction, no_reduction, unscaled
from horovod._common.handles import PendingCall, PendingGroup
from horovod._common.native import core
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._allreduce import reduce_gradients
from horovod.torch._session import handles, register_handle, run, run_differentiably, submit, submit_group
from horovod.torch._tensors import output_of, sparse_tensor

_ONE = Call(core.OP_ALLGATHER, "allgather")
_GROUP = Call(core.OP_ALLGATHER, "grouped_allgather")
Average = core.REDUCE_AVERAGE
Adasum = core.REDUCE_ADASUM


def _with_rows(native: Any) -> tuple[torch.Tensor, list[int]]:
    """The output, and the number of rows from each member."""
    return output_of(native), native.received_splits()


def gather_with_rows(tensor: torch.Tensor, name: str | None, process_set: ProcessSet) -> tuple[torch.Tensor, list[int]]:
    """A blocking allgather that also returns the number of rows of each member. Not differentiable."""
    result: tuple[torch.Tensor, list[int]] = run(_ONE, name, no_reduction(process_set), [tensor], _with_rows)[0]
    return result


class _Allgather(torch.autograd.Function):
    """Gradient: the average over ranks of the gathered gradients, of which each rank keeps its own rows."""

    @staticmethod
    def forward(ctx: Any, call: Call, name: str | None, reduction: Reduction, *tensors: torch.Tensor) -> Any:
        gathered = run(call, name, reduction, tensors, _with_rows)
        ctx.call, ctx.process_set = call, reduction.process_set
        rank = ctx.process_set.rank()
        ctx.own = [(sum(rows[:rank]), len(tensor)) for (_, rows), tensor in zip(gathered, tensors, strict=True)]
        return tuple(output for output, _ in gathered)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        reduced = reduce_gradients(grads, unscaled(Average, ctx.process_set), ctx.call.is_group)
        return None, None, None, *(grad.narrow(0, *own) for grad, own in zip(reduced, ctx.own, strict=True))


def gather(
    tensors: Sequence[torch.Tensor], name: str | None, process_set: ProcessSet, together: bool
) -> list[torch.Tensor]:
    """The blocking form: of one tensor, or of several together."""
    call, reduction = _GROUP if together else _ONE, no_reduction(process_set)
    return run_differentiably(_Allgather, call, name, reduction, tensors, output_of)


def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Concatenates the tensors of all ranks along dimension 0, in rank order, into a new tensor. Differentiable.

    Arguments:
        tensor: dense, contiguous, on the CPU or a CUDA GPU, with one or more dimensions. The first may differ between
            ranks (0 is fine); the others and the type may not.
        name: what matches the call between ranks; without it an automatic one is used, which counts unnamed calls, so
            all ranks have to make those in the same order.
        process_set: the ranks that take part, this one among them.

    ValueError: this rank's call is wrong (type, not contiguous, name pending, not a member); nothing was sent.
    HorovodInternalError: ranks disagree on type, shape or arguments (all members get it and can go on), a rank is lost,
    or Horovod is not initialised.
    """
    return gather([tensor], name, process_set, together=False)[0]


def allgather_async(tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set) -> int:
    """Starts an allgather; synchronize(handle) returns the concatenated tensor.

    Returns an int at once. `tensor` must not change until synchronize() has returned. Arguments and errors as for
    allgather(); synchronize() raises what fails between ranks.
    """
    number, native = submit(_ONE, name, no_reduction(process_set), tensor)
    return register_handle((number, PendingCall(native, output_of)))


def grouped_allgather(
    tensors: Sequence[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[torch.Tensor]:
    """Allgathers several tensors together, after every rank has submitted all; returns a list. Differentiable.

    Every rank passes as many tensors, each as for allgather(): first dimensions may differ between ranks and within the
    group. Other arguments and errors as for allgather().
    """
    return gather(list(tensors), name, process_set, together=True)


def grouped_allgather_async(
    tensors: Sequence[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts a grouped allgather; synchronize(handle) returns the list of concatenated tensors.

    Returns one int for the group at once. The tensors must not change until synchronize() has returned. Arguments and
    errors as for grouped_allgather().
    """
    number, natives = submit_group(_GROUP, name, no_reduction(process_set), tensors)
    return register_handle((number, PendingGroup(natives, output_of)))


def sparse_allreduce_async(
    tensor: torch.Tensor, name: str | None, op: int, process_set: ProcessSet = global_process_set
) -> Callable[[], torch.Tensor]:
    """Starts the reduction of a sparse COO tensor. Returns a function that waits and returns the sparse tensor.

    Arguments:
        tensor: sparse COO, on the CPU or a CUDA GPU, of one shape and type on all ranks; the number of entries may
            differ.
        name: what matches the call between ranks, as for allreduce(); None for an automatic one.
        op: Average or Sum.
        process_set: the ranks that take part, this one among them.

    It consists of two allgathers: entries with the same index stay separate until the tensor is coalesced, which adds
    them up. After KeyboardInterrupt the function may be called again. ValueError for a tensor of another layout,
    NotImplementedError for op=Adasum; else errors as for allgather_async().
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
        return sparse_tensor(all_rows.t(), all_values, shape)

    return finish
