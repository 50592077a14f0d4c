"""Broadcast in its four public forms, and the barrier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from horovod._common.native import core
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._allreduce import reduce_now
from horovod.torch._session import file, submit
from horovod.torch._tensors import CPU, movable, new_result, set_id

if TYPE_CHECKING:
    from horovod._core import Handle


def _start_broadcast(
    tensor: torch.Tensor, output: torch.Tensor | None, root_rank: int, name: str | None, process_set: ProcessSet
) -> tuple[int, Handle]:
    """Submits a broadcast from global rank `root_rank`; without `output` a new tensor is made."""
    dtype = movable(tensor, "broadcast")
    if output is None:
        output = new_result(tensor, dtype)
    return submit(core.OP_BROADCAST, "broadcast", name, tensor, dtype, output, 0, 1.0, 1.0, root_rank, process_set)


class _Broadcast(torch.autograd.Function):
    """Gradient: the average over ranks for the root, zeros for the others."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet) -> Any:
        ctx.parameters = (root_rank, process_set)
        return _start_broadcast(tensor, None, root_rank, name, process_set)[1].wait()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        root_rank, process_set = ctx.parameters
        reduced = reduce_now(grads[0].contiguous(), None, core.REDUCE_AVERAGE, 1.0, 1.0, process_set)
        if core.rank() != root_rank:
            reduced = torch.zeros_like(reduced)
        return reduced, None, None, None


def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Gives every rank a new tensor with the values of global rank `root_rank`, also the root. Differentiable.

    Arguments:
        tensor: dense, contiguous, on the CPU, of one shape and type on all ranks; only the root's elements matter.
        root_rank: a rank of the job, not of the set, but a member of the set; the same on all ranks.
        name: what matches the call between ranks; without it an automatic one is used, which counts unnamed calls, so
            all ranks have to make those in the same order.
        process_set: the ranks that take part, this one among them.

    ValueError: this rank's call is wrong (type, not contiguous, name pending, not a member); nothing was sent.
    HorovodInternalError: ranks disagree on type, shape or arguments (all members get it and can go on), a rank is lost,
    or Horovod is not initialised.
    """
    result: torch.Tensor
    if isinstance(tensor, torch.Tensor) and tensor.requires_grad and torch.is_grad_enabled():
        result = _Broadcast.apply(tensor, root_rank, name, process_set)  # type: ignore[no-untyped-call]
    else:
        result = _start_broadcast(tensor, None, root_rank, name, process_set)[1].wait()
    return result


def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts a broadcast into a new tensor; synchronize(handle) gives it.

    Returns an int at once. `tensor` must not change until synchronize() has returned. Arguments and errors as for
    broadcast(); what fails between ranks is raised by synchronize().
    """
    return file(_start_broadcast(tensor, None, root_rank, name, process_set))


def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Overwrites `tensor` with the values of global rank `root_rank`, and gives the tensor itself.

    Arguments, shapes and errors as for broadcast(). Not differentiable; autograd is told of the write.
    """
    _start_broadcast(tensor, tensor, root_rank, name, process_set)[1].wait()
    return tensor


def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts a broadcast in place; synchronize(handle) gives the tensor itself.

    Returns an int at once. `tensor` must not be touched until synchronize() has returned. Arguments and errors as for
    broadcast_().
    """
    return file(_start_broadcast(tensor, tensor, root_rank, name, process_set))


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns once every rank of the set has called it.

    HorovodInternalError: a rank is lost, or Horovod is not initialised. ValueError: this rank is not in the set.
    """
    core.enqueue(
        core.OP_BARRIER, "barrier.noname", 0, 0, (), core.DTYPE_UINT8, CPU, 0, 1.0, 1.0, 0, set_id(process_set), None
    ).wait()
