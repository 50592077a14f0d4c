"""Alltoall: every rank sends rows of a tensor to every other."""

from __future__ import annotations

from typing import Any

import torch

from horovod._common.calls import Call, Reduction, no_reduction
from horovod._common.handles import PendingCall
from horovod._common.native import core
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._session import Finish, in_autograd, register_handle, run, submit
from horovod.torch._tensors import output_of


def _splits_tensor(splits: Any) -> torch.Tensor | None:
    """The splits as an int32 tensor, on the CPU unless they are a tensor already; None if there are none."""
    if splits is None:
        return None
    if not isinstance(splits, torch.Tensor):
        try:
            given = torch.as_tensor(splits, device="cpu")
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


def _sending(splits: torch.Tensor | None) -> Call:
    return Call(core.OP_ALLTOALL, "alltoall", splits=() if splits is None else splits.reshape(-1).tolist())


def _finish_on(device: torch.device | None) -> Finish:
    """Makes a function for the result: the output, and the rows from each member as a tensor on the device."""

    def finish(native: Any) -> tuple[torch.Tensor, torch.Tensor]:
        received = torch.tensor(native.received_splits(), dtype=torch.int32, device=device or "cpu")
        return output_of(native), received

    return finish


class _Alltoall(torch.autograd.Function):
    """Gradient: alltoall of the gradient, which returns each part to the rank that sent it."""

    @staticmethod
    def forward(ctx: Any, call: Call, name: str | None, reduction: Reduction, *tensors: torch.Tensor) -> Any:
        ((output, received),) = run(call, name, reduction, tensors, _finish_on(None))
        ctx.received, ctx.reduction, ctx.rows = received, reduction, len(tensors[0])
        ctx.mark_non_differentiable(received)
        return output, received

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        returned, _ = _exchange(_sending(ctx.received), None, ctx.reduction, grads[0].contiguous())
        if returned.shape[0] < ctx.rows:  # rows beyond the splits were not sent
            unsent = returned.new_zeros((ctx.rows - returned.shape[0], *returned.shape[1:]))
            returned = torch.cat([returned, unsent])
        return None, None, None, returned


def _exchange(
    call: Call, name: str | None, reduction: Reduction, tensor: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The blocking form. Uses autograd only for tensors that require a gradient."""
    if in_autograd([tensor]):
        output, received = _Alltoall.apply(call, name, reduction, tensor)  # type: ignore[no-untyped-call]
    else:
        ((output, received),) = run(call, name, reduction, [tensor], _finish_on(None))
    return output, received


def alltoall(
    tensor: torch.Tensor,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends the first splits[0] rows to the first rank of the set, the next splits[1] to the second, and so on.

    Returns the rows that came from all ranks, in rank order; with `splits` a pair: the rows, and an int32 tensor of how
    many came from each rank, on the device of `splits`. Differentiable.

    Arguments:
        tensor: dense, contiguous, on the CPU or a CUDA GPU, with one or more dimensions; all but the first, and the
            type, are the same on all ranks.
        splits: a list or an int32 tensor with one number of rows for each rank of the set, together no more than there
            are; without it every rank gets an equal share.
        name: what matches the call between ranks; without it an automatic one is used, which counts unnamed calls, so
            all ranks have to make those in the same order.
        process_set: the ranks that take part, this one among them.

    ValueError: this rank's call is wrong (type, not contiguous, name pending, not a member); nothing was sent.
    HorovodInternalError: ranks disagree on type, shape or arguments (all members get it and can go on), a rank is lost,
    or Horovod is not initialised.
    """
    rows = _splits_tensor(splits)
    output, received = _exchange(_sending(rows), name, no_reduction(process_set), tensor)
    return output if rows is None else (output, received.to(rows.device))


def alltoall_async(
    tensor: torch.Tensor,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts an alltoall; synchronize(handle) returns the output and the received splits, always both.

    Returns an int at once. `tensor` must not change until synchronize() has returned. Arguments and errors as for
    alltoall(); synchronize() raises what fails between ranks.
    """
    rows = _splits_tensor(splits)
    number, native = submit(_sending(rows), name, no_reduction(process_set), tensor)
    return register_handle((number, PendingCall(native, _finish_on(None if rows is None else rows.device))))
