"""Allreduce of one tensor in its four public forms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from horovod._common.native import core
from horovod._common.session import handle_average_backwards_compatibility
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._session import file, submit
from horovod.torch._tensors import check_op, new_result, reducible
from horovod.torch.compression import Compression, Compressor

if TYPE_CHECKING:
    from horovod._core import Handle

_ALLREDUCE = core.OP_ALLREDUCE
_ADASUM = core.REDUCE_ADASUM


def _start_allreduce(
    tensor: torch.Tensor,
    output: torch.Tensor | None,
    name: str | None,
    op: int,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
) -> tuple[int, Handle]:
    """Submits an allreduce; without `output` a new tensor is made. A few microseconds, most of them in the core."""
    if op == _ADASUM:
        check_op(op, process_set, "allreduce")
    dtype = reducible(tensor, op, "allreduce")
    if output is None:
        output = new_result(tensor, dtype)
    return submit(_ALLREDUCE, "allreduce", name, tensor, dtype, output, op, prescale, postscale, 0, process_set)


def _finish(started: tuple[int, Handle]) -> torch.Tensor:
    """Waits for what was started; its number was needed for the name only."""
    result: torch.Tensor = started[1].wait()
    return result


class _Allreduce(torch.autograd.Function):
    """Gradient: allreduce of the gradient with the same parameters."""

    @staticmethod
    def forward(
        ctx: Any,
        tensor: torch.Tensor,
        name: str | None,
        op: int,
        prescale: float,
        postscale: float,
        process_set: ProcessSet,
    ) -> Any:
        ctx.parameters = (op, prescale, postscale, process_set)
        return _finish(_start_allreduce(tensor, None, name, op, prescale, postscale, process_set))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        op, prescale, postscale, process_set = ctx.parameters
        reduced = reduce_now(grads[0].contiguous(), None, op, prescale, postscale, process_set)
        return reduced, None, None, None, None, None


def reduce_now(
    tensor: torch.Tensor, name: str | None, op: int, prescale: float, postscale: float, process_set: ProcessSet
) -> torch.Tensor:
    """The blocking form; goes through autograd only for tensors that take part in it."""
    result: torch.Tensor
    if isinstance(tensor, torch.Tensor) and tensor.requires_grad and torch.is_grad_enabled():
        result = _Allreduce.apply(tensor, name, op, prescale, postscale, process_set)  # type: ignore[no-untyped-call]
    else:
        result = _finish(_start_allreduce(tensor, None, name, op, prescale, postscale, process_set))
    return result


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
        tensor: dense, contiguous, on the CPU, of one shape and type on all ranks; bool only with Min and Max. It stays
            as it is, and the result has its shape and type.
        op: Average (the default), Sum, Min, Max, Product or Adasum. `average` is its deprecated form: True or False.
        name: what matches the call between ranks; without it an automatic one is used, which counts unnamed calls, so
            all ranks have to make those in the same order.
        compression: Compression.fp16 sends floating-point elements as float16.
        prescale_factor, postscale_factor: every input is multiplied by the first, the result by the second.
        process_set: the ranks that take part, this one among them.

    ValueError: this rank's call is wrong (type, not contiguous, name pending, not a member); nothing was sent.
    HorovodInternalError: ranks disagree on type, shape or arguments (all members get it and can go on), a rank is lost,
    or Horovod is not initialised.

    >>> hvd.allreduce(torch.tensor([1.0]), op=hvd.Sum)  # on each of two ranks
    tensor([2.])
    """
    op = handle_average_backwards_compatibility(op, average)
    compressed, ctx = compression.compress(tensor)
    reduced = reduce_now(compressed, name, op, prescale_factor, postscale_factor, process_set)
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
    """Starts an allreduce into a new tensor; synchronize(handle) gives it.

    Returns an int at once. `tensor` must not change until synchronize() has returned. Arguments and ValueError as for
    allreduce(); what fails between ranks is raised by synchronize().
    """
    op = handle_average_backwards_compatibility(op, average)
    return file(_start_allreduce(tensor, None, name, op, prescale_factor, postscale_factor, process_set))


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Reduces `tensor` over all ranks of the set, in place, and gives the tensor itself. Not differentiable.

    Arguments, shapes and errors as for allreduce(). Autograd is told of the write: a backward pass that needs the old
    values raises.
    """
    op = handle_average_backwards_compatibility(op, average)
    return _finish(_start_allreduce(tensor, tensor, name, op, prescale_factor, postscale_factor, process_set))


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts an allreduce in place; synchronize(handle) gives the tensor itself.

    Returns an int at once. `tensor` must not be read or written until synchronize() has returned. Arguments and errors
    as for allreduce_(); what fails between ranks is raised by synchronize().
    """
    op = handle_average_backwards_compatibility(op, average)
    return file(_start_allreduce(tensor, tensor, name, op, prescale_factor, postscale_factor, process_set))
