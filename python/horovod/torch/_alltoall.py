"""Alltoall: every rank sends rows of a tensor to every other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

from horovod._common.handles import PendingCall
from horovod._common.native import core
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._session import file, handles, names
from horovod.torch._tensors import CPU, movable, set_id


def _splits_tensor(splits: Any) -> torch.Tensor | None:
    """The splits as an int32 tensor on the CPU or wherever the caller has them; None when there are none."""
    if splits is None:
        return None
    if not isinstance(splits, torch.Tensor):
        try:
            given = torch.as_tensor(splits)
            if given.is_floating_point() and given.numel() > 0:
                raise ValueError("they are not whole numbers")
            splits = torch.tensor(splits, dtype=torch.int32, device="cpu")
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"alltoall: expected a list of row numbers as splits, got {splits!r}: {error}") from error
    if splits.dtype is not torch.int32:
        raise ValueError(f"alltoall: splits must be of type torch.int32, not {splits.dtype}")
    if splits.dim() > 1:
        raise ValueError(f"alltoall: splits must have one dimension, got shape {list(splits.shape)}")
    result: torch.Tensor = splits
    return result


def _start_alltoall(
    tensor: torch.Tensor,
    splits: torch.Tensor | None,
    name: str | None,
    process_set: ProcessSet,
) -> tuple[int, PendingCall]:
    """Submits an alltoall; its result is the output and the rows that came from each member."""
    dtype = movable(tensor, "alltoall")
    members = set_id(process_set)
    number = handles.next_number()
    try:
        native = core.enqueue_alltoall(
            f"alltoall.{name}" if name else names.make("alltoall", members),
            tensor.data_ptr(),
            tensor.shape,
            dtype,
            CPU,
            [] if splits is None else splits.reshape(-1).tolist(),
            members,
            tensor,
        )
    except BaseException:
        if not name:
            names.give_back(members)
        handles.give_back(number)
        raise
    device = torch.device("cpu") if splits is None else splits.device
    return number, PendingCall(native, _finish_on(device))


def _finish_on(device: torch.device) -> Callable[[Any], tuple[torch.Tensor, torch.Tensor]]:
    def finish(native: Any) -> tuple[torch.Tensor, torch.Tensor]:
        received = torch.tensor(native.received_splits(), dtype=torch.int32, device=device)
        return from_dlpack(native.output_dlpack()), received

    return finish


class _Alltoall(torch.autograd.Function):
    """Gradient: alltoall of the gradient, each part back to where it came from; none for the splits."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, splits: torch.Tensor | None, name: str | None, process_set: ProcessSet
    ) -> Any:
        output, received = _start_alltoall(tensor, splits, name, process_set)[1].wait()
        ctx.process_set = process_set
        ctx.received = received
        ctx.rows = tensor.shape[0]
        ctx.mark_non_differentiable(received)
        return output, received

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        returned, _ = _exchange(grads[0].contiguous(), ctx.received, None, ctx.process_set)
        if returned.shape[0] < ctx.rows:  # rows beyond the splits were not sent
            unsent = returned.new_zeros((ctx.rows - returned.shape[0], *returned.shape[1:]))
            returned = torch.cat([returned, unsent])
        return returned, None, None, None


def _exchange(
    tensor: torch.Tensor, splits: torch.Tensor | None, name: str | None, process_set: ProcessSet
) -> tuple[torch.Tensor, torch.Tensor]:
    """The blocking form; goes through autograd only for tensors that take part in it."""
    result: tuple[torch.Tensor, torch.Tensor]
    if isinstance(tensor, torch.Tensor) and tensor.requires_grad and torch.is_grad_enabled():
        result = _Alltoall.apply(tensor, splits, name, process_set)  # type: ignore[no-untyped-call]
    else:
        result = _start_alltoall(tensor, splits, name, process_set)[1].wait()
    return result


def alltoall(
    tensor: torch.Tensor,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends the first splits[0] rows to the first rank of the set, the next splits[1] to the second, and so on.

    Gives the rows that came from all ranks, in rank order; with `splits` also an int32 tensor of how many came from
    each, on the device of `splits`. Differentiable.

    Arguments:
        tensor: dense, contiguous, on the CPU, with one or more dimensions; all but the first, and the type, are the
            same on all ranks.
        splits: a list or an int32 tensor with one number of rows for each rank of the set, together no more than there
            are; without it every rank gets an equal share.
        name: what matches the call between ranks; without it an automatic one is used, which counts unnamed calls, so
            all ranks have to make those in the same order.
        process_set: the ranks that take part, this one among them.

    ValueError: this rank's call is wrong (type, not contiguous, name pending, not a member); nothing was sent.
    HorovodInternalError: ranks disagree on type, shape or arguments (all members get it and can go on), a rank is lost,
    or Horovod is not initialised.
    """
    output, received = _exchange(tensor, _splits_tensor(splits), name, process_set)
    return output if splits is None else (output, received)


def alltoall_async(
    tensor: torch.Tensor,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts an alltoall; synchronize(handle) gives the output and the received splits, always both.

    Returns an int at once. `tensor` must not change until synchronize() has returned. Arguments and errors as for
    alltoall(); what fails between ranks is raised by synchronize().
    """
    return file(_start_alltoall(tensor, _splits_tensor(splits), name, process_set))
