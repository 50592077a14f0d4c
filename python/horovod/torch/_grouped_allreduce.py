"""Allreduce of several tensors that are negotiated together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from horovod._common.handles import PendingGroup
from horovod._common.native import core
from horovod._common.session import handle_average_backwards_compatibility
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._session import file, in_autograd, submit_group
from horovod.torch._tensors import check_one_device, check_op, new_result, reducible
from horovod.torch.compression import Compression, Compressor


def _start_grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    in_place: bool,
    name: str | None,
    op: int,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
) -> tuple[int, PendingGroup]:
    """Submits tensors that are negotiated together; all or none of them."""
    tensors = list(tensors)
    check_op(op, process_set, "grouped_allreduce")
    check_one_device(tensors, "grouped_allreduce")
    dtypes = [reducible(tensor, op, "grouped_allreduce") for tensor in tensors]
    outputs = tensors if in_place else list(map(new_result, tensors, dtypes))
    number, natives = submit_group(
        core.OP_ALLREDUCE,
        "grouped_allreduce",
        name,
        tensors,
        dtypes,
        outputs,
        op,
        prescale,
        postscale,
        process_set,
    )
    return number, PendingGroup(natives)


class _GroupedAllreduce(torch.autograd.Function):
    """Gradient: grouped allreduce of the gradients with the same parameters."""

    @staticmethod
    def forward(
        ctx: Any,
        name: str | None,
        op: int,
        prescale: float,
        postscale: float,
        process_set: ProcessSet,
        *tensors: torch.Tensor,
    ) -> Any:
        ctx.parameters = (op, prescale, postscale, process_set)
        return tuple(_start_grouped_allreduce(tensors, False, name, op, prescale, postscale, process_set)[1].wait())

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        op, prescale, postscale, process_set = ctx.parameters
        reduced = reduce_group_now([grad.contiguous() for grad in grads], None, op, prescale, postscale, process_set)
        return None, None, None, None, None, *reduced


def reduce_group_now(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    op: int,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
) -> list[torch.Tensor]:
    if in_autograd(tensors):
        return list(_GroupedAllreduce.apply(name, op, prescale, postscale, process_set, *tensors))  # type: ignore[no-untyped-call]
    return _start_grouped_allreduce(tensors, False, name, op, prescale, postscale, process_set)[1].wait()


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
        tensors: dense, contiguous, on the CPU, as many on every rank, each with one shape and type on all ranks. Types
            may differ within the group.
        op: Average (the default), Sum, Min, Max, Product or Adasum. `average` is its deprecated form: True or False.
        name: what matches the call between ranks; without it an automatic one is used, which counts unnamed calls, so
            all ranks have to make those in the same order.
        compression: Compression.fp16 sends floating-point elements as float16.
        prescale_factor, postscale_factor: every input is multiplied by the first, the result by the second.
        process_set: the ranks that take part, this one among them.

    ValueError: this rank's call is wrong (type, not contiguous, name pending, not a member); nothing was sent.
    HorovodInternalError: ranks disagree on type, shape or arguments (all members get it and can go on), a rank is lost,
    or Horovod is not initialised.
    """
    op = handle_average_backwards_compatibility(op, average)
    compressed = [compression.compress(tensor) for tensor in tensors]
    reduced = reduce_group_now(
        [tensor for tensor, _ in compressed], name, op, prescale_factor, postscale_factor, process_set
    )
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
    """Starts a grouped allreduce; synchronize(handle) gives the list of new tensors.

    Returns one int for the group at once. The tensors must not change until synchronize() has returned. Arguments and
    errors as for grouped_allreduce(); what fails between ranks is raised by synchronize().
    """
    op = handle_average_backwards_compatibility(op, average)
    return file(_start_grouped_allreduce(tensors, False, name, op, prescale_factor, postscale_factor, process_set))


def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Reduces several tensors together, in place, and gives a list of the tensors themselves. Not differentiable.

    Arguments, shapes and errors as for grouped_allreduce(). Autograd is told of the writes.
    """
    op = handle_average_backwards_compatibility(op, average)
    return _start_grouped_allreduce(tensors, True, name, op, prescale_factor, postscale_factor, process_set)[1].wait()


def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts a grouped allreduce in place; synchronize(handle) gives the list of the tensors themselves.

    Returns one int for the group at once. The tensors must not be touched until synchronize() has returned. Arguments
    and errors as for grouped_allreduce_().
    """
    op = handle_average_backwards_compatibility(op, average)
    return file(_start_grouped_allreduce(tensors, True, name, op, prescale_factor, postscale_factor, process_set))
