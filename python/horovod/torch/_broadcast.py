"""Broadcast in its four public forms and of many tensors in place, and the barrier."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from horovod._common.calls import Call, Reduction, no_reduction, run_without_tensor, set_id, unscaled
from horovod._common.handles import wait_for_all
from horovod._common.native import core
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._allreduce import reduce_gradients
from horovod.torch._session import handles, register_handle, run, run_differentiably, submit


class _Broadcast(torch.autograd.Function):
    """Gradient: the average over ranks for the root, zeros for the others."""

    @staticmethod
    def forward(ctx: Any, call: Call, name: str | None, reduction: Reduction, *tensors: torch.Tensor) -> Any:
        ctx.root_rank, ctx.process_set = call.root_rank, reduction.process_set
        return tuple(run(call, name, reduction, tensors))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        average = unscaled(core.REDUCE_AVERAGE, ctx.process_set)
        (reduced,) = reduce_gradients(grads, average, together=False)
        if core.rank() != ctx.root_rank:
            # Zeros that depend on the average: all ranks reduce in the backward pass of this one, too.
            reduced = reduced.masked_fill(torch.ones((), dtype=torch.bool, device=reduced.device), 0)
        return None, None, None, reduced


def _from(root_rank: int) -> Call:
    return Call(core.OP_BROADCAST, "broadcast", root_rank)


def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Returns a new tensor with the values of global rank `root_rank` on every rank, the root included. Differentiable.

    Arguments:
        tensor: dense, contiguous, on the CPU or a CUDA GPU, of one shape and type on all ranks; only the root's
            elements matter.
        root_rank: a rank of the job, not of the set, but a member of the set; the same on all ranks.
        name: what matches the call between ranks; without it an automatic one is used, which counts unnamed calls, so
            all ranks have to make those in the same order.
        process_set: the ranks that take part, this one among them.

    ValueError: this rank's call is wrong (type, not contiguous, name pending, not a member); nothing was sent.
    HorovodInternalError: ranks disagree on type, shape or arguments (all members get it and can go on), a rank is lost,
    or Horovod is not initialised.
    """
    result: torch.Tensor
    (result,) = run_differentiably(_Broadcast, _from(root_rank), name, no_reduction(process_set), [tensor])
    return result


def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts a broadcast into a new tensor; synchronize(handle) returns it.

    Returns an int at once. `tensor` must not change until synchronize() has returned. Arguments and errors as for
    broadcast(); synchronize() raises what fails between ranks.
    """
    return register_handle(submit(_from(root_rank), name, no_reduction(process_set), tensor))


def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Overwrites `tensor` with the values of global rank `root_rank`, and returns the tensor itself.

    Arguments, shapes and errors as for broadcast(). Not differentiable; autograd notices the write.
    """
    submit(_from(root_rank), name, no_reduction(process_set), tensor, tensor)[1].wait()
    return tensor


def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts a broadcast in place; synchronize(handle) returns the tensor itself.

    Returns an int at once. `tensor` must not be touched until synchronize() has returned. Arguments and errors as for
    broadcast_().
    """
    return register_handle(submit(_from(root_rank), name, no_reduction(process_set), tensor, tensor))


def broadcast_each_(named: Iterable[tuple[str | None, torch.Tensor]], root_rank: int) -> None:
    """Overwrites tensors of any strides under these names, waits for all, and raises the first error."""
    wait_for_all(_started(name, tensor, root_rank) for name, tensor in named)


def _started(name: str | None, tensor: torch.Tensor, root_rank: int) -> Callable[[], None]:
    contiguous = tensor.detach().contiguous()
    handle = broadcast_async_(contiguous, root_rank, name)

    def finish() -> None:
        handles.synchronize(handle)
        if contiguous.data_ptr() != tensor.data_ptr():
            with torch.no_grad():
                tensor.copy_(contiguous)

    return finish


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Waits until every rank of `process_set` has called it.

    HorovodInternalError: a rank is lost, or Horovod is not initialised. ValueError: this rank is not in the set.
    """
    run_without_tensor(core.OP_BARRIER, "barrier.noname", set_id(process_set))
