"""Allreduce of one tensor, or of several that are negotiated together, in four public forms each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from horovod._common.calls import Call, Reduction
from horovod._common.native import core
from horovod._common.session import handle_average_backwards_compatibility
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._session import (
    register_handle,
    run,
    run_differentiably,
    submit,
    submit_group,
    submit_reduced,
)
from horovod.torch.compression import Compression, Compressor

_ONE = Call(core.OP_ALLREDUCE, "allreduce")
_GROUP = Call(core.OP_ALLREDUCE, "grouped_allreduce")


class _Allreduce(torch.autograd.Function):
    """Gradient: allreduce of the gradients with the same parameters, together if the tensors were."""

    @staticmethod
    def forward(ctx: Any, call: Call, name: str | None, reduction: Reduction, *tensors: torch.Tensor) -> Any:
        ctx.call, ctx.reduction = call, reduction
        return tuple(run(call, name, reduction, tensors))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return None, None, None, *reduce_gradients(grads, ctx.reduction, ctx.call.is_group)


def _reduce(call: Call, name: str | None, reduction: Reduction, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return run_differentiably(_Allreduce, call, name, reduction, tensors)


def reduce_now(tensor: torch.Tensor, name: str | None, reduction: Reduction) -> torch.Tensor:
    """Reduces one tensor into a new one, and waits."""
    return _reduce(_ONE, name, reduction, [tensor])[0]


def reduce_gradients(grads: Sequence[torch.Tensor], reduction: Reduction, together: bool) -> list[torch.Tensor]:
    """Reduces the gradients of a call's results in its backward pass: each alone, or all together."""
    return _reduce(_GROUP if together else _ONE, None, reduction, [grad.contiguous() for grad in grads])


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Reduces `tensor` over all ranks of the set into a new tensor, and waits for it. Differentiable.

    Arguments, the same on all ranks but for the tensor's elements:
        tensor: dense, contiguous, on the CPU or a CUDA GPU, of one shape and type on all ranks; bool only with Min and
            Max. It is not changed; the result has its shape and type.
        op: Average (the default), Sum, Min, Max, Product or Adasum. `average` is its deprecated form: True or False.
        name: what matches the call between ranks; without it an automatic one is used, which counts unnamed calls, so
            all ranks have to make those in the same order.
        compression: Compression.fp16 or bf16 sends floating-point elements in 16 bits.
        prescale_factor, postscale_factor: every input is multiplied by the first, the result by the second.
        process_set: the ranks that take part, this one among them.

    ValueError: this rank's call is wrong (type, not contiguous, name pending, not a member); nothing was sent.
    HorovodInternalError: ranks disagree on type, shape or arguments (all members get it and can go on), a rank is lost,
    or Horovod is not initialised.

    >>> hvd.allreduce(torch.tensor([1.0]), op=hvd.Sum)  # on each of two ranks
    tensor([2.])
    """
    op = handle_average_backwards_compatibility(op, average)
    reduction = Reduction(op, prescale_factor, postscale_factor, process_set)
    compressed, ctx = compression.compress(tensor)
    reduced = reduce_now(compressed, name, reduction)
    return compression.decompress(reduced, ctx)


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts an allreduce into a new tensor; synchronize(handle) returns it.

    Returns an int at once. `tensor` must not change until synchronize() has returned. Arguments and errors as for
    allreduce(); synchronize() raises what fails between ranks.
    """
    op = handle_average_backwards_compatibility(op, average)
    return register_handle(submit_reduced(_ONE, name, op, prescale_factor, postscale_factor, process_set, tensor))


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Reduces `tensor` over all ranks of the set, in place, and returns the tensor itself. Not differentiable.

    Arguments, shapes and errors as for allreduce(). Autograd notices the write: a backward pass that needs the old
    values raises.
    """
    op = handle_average_backwards_compatibility(op, average)
    reduction = Reduction(op, prescale_factor, postscale_factor, process_set)
    result: torch.Tensor = submit(_ONE, name, reduction, tensor, tensor, is_awaited=True)[1].wait()
    return result


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts an allreduce in place; synchronize(handle) returns the tensor itself.

    Returns an int at once. `tensor` must not be read or written until synchronize() has returned. Arguments and errors
    as for allreduce_(); synchronize() raises what fails between ranks.
    """
    op = handle_average_backwards_compatibility(op, average)
    return register_handle(
        submit_reduced(_ONE, name, op, prescale_factor, postscale_factor, process_set, tensor, tensor)
    )


def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Reduces several tensors together into a list of new ones; none before every rank has submitted all.
    Differentiable.

    Arguments, the same on all ranks but for the tensors' elements:
        tensors: dense, contiguous, on the CPU or a CUDA GPU, as many on every rank, each with one shape and type on all
            ranks. Types may differ within the group.
        op: Average (the default), Sum, Min, Max, Product or Adasum. `average` is its deprecated form: True or False.
        name: what matches the call between ranks; without it an automatic one is used, which counts unnamed calls, so
            all ranks have to make those in the same order.
        compression: Compression.fp16 or bf16 sends floating-point elements in 16 bits.
        prescale_factor, postscale_factor: every input is multiplied by the first, the result by the second.
        process_set: the ranks that take part, this one among them.

    ValueError: this rank's call is wrong (type, not contiguous, name pending, not a member); nothing was sent.
    HorovodInternalError: ranks disagree on type, shape or arguments (all members get it and can go on), a rank is lost,
    or Horovod is not initialised.
    """
    op = handle_average_backwards_compatibility(op, average)
    compressed = [compression.compress(tensor) for tensor in tensors]
    reduction = Reduction(op, prescale_factor, postscale_factor, process_set)
    reduced = _reduce(_GROUP, name, reduction, [tensor for tensor, _ in compressed])
    return [compression.decompress(tensor, ctx) for tensor, (_, ctx) in zip(reduced, compressed, strict=True)]


def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts a grouped allreduce; synchronize(handle) returns the list of new tensors.

    Returns one int for the group at once. The tensors must not change until synchronize() has returned. Arguments and
    errors as for grouped_allreduce(); synchronize() raises what fails between ranks.
    """
    op = handle_average_backwards_compatibility(op, average)
    reduction = Reduction(op, prescale_factor, postscale_factor, process_set)
    return register_handle(submit_group(_GROUP, name, reduction, tensors))


def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Reduces several tensors together, in place, and returns a list of the tensors themselves. Not differentiable.

    Arguments, shapes and errors as for grouped_allreduce(). Autograd notices the writes.
    """
    op = handle_average_backwards_compatibility(op, average)
    reduction = Reduction(op, prescale_factor, postscale_factor, process_set)
    return submit_group(_GROUP, name, reduction, tensors, in_place=True)[1].wait()


def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts a grouped allreduce in place; synchronize(handle) returns the list of the tensors themselves.

    Returns one int for the group at once. The tensors must not be touched until synchronize() has returned. Arguments
    and errors as for grouped_allreduce_().
    """
    op = handle_average_backwards_compatibility(op, average)
    reduction = Reduction(op, prescale_factor, postscale_factor, process_set)
    return register_handle(submit_group(_GROUP, name, reduction, tensors, in_place=True))
