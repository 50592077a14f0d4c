"""Reducescatter of one or several tensors: a reduction whose result is divided among the ranks by rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from horovod._common.calls import Call, Reduction
from horovod._common.handles import PendingCall, PendingGroup
from horovod._common.native import core
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._allgather import gather
from horovod.torch._session import register_handle, run, run_differentiably, submit, submit_group
from horovod.torch._tensors import output_of
from horovod.torch.compression import Compression, Compressor

_ONE = Call(core.OP_REDUCESCATTER, "reducescatter")
_GROUP = Call(core.OP_REDUCESCATTER, "grouped_reducescatter")
Average = core.REDUCE_AVERAGE
Sum = core.REDUCE_SUM


class _Reducescatter(torch.autograd.Function):
    """Gradient: allgather of the gradients, times the size of the set for a sum, and times the factors."""

    @staticmethod
    def forward(ctx: Any, call: Call, name: str | None, reduction: Reduction, *tensors: torch.Tensor) -> Any:
        ctx.call, ctx.reduction = call, reduction
        return tuple(run(call, name, reduction, tensors, output_of))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        reduction = ctx.reduction
        members = (reduction.process_set.size() or 1) if reduction.op == Sum else 1
        factor = members * reduction.prescale * reduction.postscale
        scaled = [(grad if factor == 1 else grad * factor).contiguous() for grad in grads]
        return None, None, None, *gather(scaled, None, reduction.process_set, ctx.call.is_group)


def _scatter(call: Call, name: str | None, reduction: Reduction, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return run_differentiably(_Reducescatter, call, name, reduction, tensors, output_of)


def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Reduces `tensor` over the N ranks of the set; each gets its share of the rows, a new tensor. Differentiable.

    Every rank gets dim0 // N rows, in rank order, and the first dim0 % N ranks get one more.

    Arguments, the same on all ranks but for the tensor's elements:
        tensor: dense, contiguous, on the CPU or a CUDA GPU, with one or more dimensions, of one shape and type on all
            ranks.
        op: Average (the default) or Sum.
        name: what matches the call between ranks; without it an automatic one is used, which counts unnamed calls, so
            all ranks have to make those in the same order.
        compression: Compression.fp16 or bf16 sends floating-point elements in 16 bits.
        process_set: the ranks that take part, this one among them.
        prescale_factor, postscale_factor: every input is multiplied by the first, the result by the second.

    ValueError: this rank's call is wrong (type, not contiguous, name pending, not a member); nothing was sent.
    HorovodInternalError: ranks disagree on type, shape or arguments (all members get it and can go on), a rank is lost,
    or Horovod is not initialised. Also for another op.
    """
    compressed, ctx = compression.compress(tensor)
    reduction = Reduction(op, prescale_factor, postscale_factor, process_set)
    return compression.decompress(_scatter(_ONE, name, reduction, [compressed])[0], ctx)


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Starts a reducescatter; synchronize(handle) returns this rank's rows.

    Returns an int at once. `tensor` must not change until synchronize() has returned. Arguments and errors as for
    reducescatter(); synchronize() raises what fails between ranks.
    """
    reduction = Reduction(op, prescale_factor, postscale_factor, process_set)
    number, native = submit(_ONE, name, reduction, tensor)
    return register_handle((number, PendingCall(native, output_of)))


def grouped_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """Reduces and scatters several tensors together, after every rank has submitted all. Differentiable.

    Every rank passes as many tensors, each as for reducescatter(), and gets a list of its rows of each. Other arguments
    and errors as for reducescatter().
    """
    pairs = [compression.compress(tensor) for tensor in tensors]
    reduction = Reduction(op, prescale_factor, postscale_factor, process_set)
    results = _scatter(_GROUP, name, reduction, [tensor for tensor, _ in pairs])
    return [compression.decompress(tensor, ctx) for tensor, (_, ctx) in zip(results, pairs, strict=True)]


def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Starts a grouped reducescatter; synchronize(handle) returns the list of this rank's rows of each.

    Returns one int for the group at once. The tensors must not change until synchronize() has returned. Arguments and
    errors as for grouped_reducescatter().
    """
    reduction = Reduction(op, prescale_factor, postscale_factor, process_set)
    number, natives = submit_group(_GROUP, name, reduction, tensors)
    return register_handle((number, PendingGroup(natives, output_of)))
