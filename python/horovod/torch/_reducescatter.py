"""Reducescatter of one or several tensors: a reduction of which each rank keeps its share of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

from horovod._common.handles import PendingCall, PendingGroup
from horovod._common.native import core
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._allgather import allgather, grouped_allgather
from horovod.torch._session import file, in_autograd, submit, submit_group
from horovod.torch._tensors import check_one_device, reducible
from horovod.torch.compression import Compression, Compressor

Average = core.REDUCE_AVERAGE
Sum = core.REDUCE_SUM


def _scatterable(tensor: torch.Tensor, op: int, operation: str) -> int:
    """The core's type code of a tensor that can be reduced and scattered."""
    if op not in (Average, Sum):
        raise HorovodInternalError(f"{operation}: the only ops are Average and Sum, got op={op!r}")
    dtype = reducible(tensor, op, operation)
    if tensor.dim() == 0:
        raise ValueError(f"{operation}: a tensor without dimensions has no rows to scatter")
    return dtype


def _output(native: Any) -> torch.Tensor:
    return from_dlpack(native.output_dlpack())


def _start_reducescatter(
    tensor: torch.Tensor, name: str | None, op: int, prescale: float, postscale: float, process_set: ProcessSet
) -> tuple[int, PendingCall]:
    dtype = _scatterable(tensor, op, "reducescatter")
    number, native = submit(
        core.OP_REDUCESCATTER,
        "reducescatter",
        name,
        tensor,
        dtype,
        None,
        op,
        prescale,
        postscale,
        0,
        process_set,
    )
    return number, PendingCall(native, _output)


def _start_grouped_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    op: int,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
) -> tuple[int, PendingGroup]:
    tensors = list(tensors)
    check_one_device(tensors, "grouped_reducescatter")
    dtypes = [_scatterable(tensor, op, "grouped_reducescatter") for tensor in tensors]
    number, natives = submit_group(
        core.OP_REDUCESCATTER,
        "grouped_reducescatter",
        name,
        tensors,
        dtypes,
        [None] * len(tensors),
        op,
        prescale,
        postscale,
        process_set,
    )
    return number, PendingGroup(natives, _output)


def _scaled_gradient(grad: torch.Tensor, parameters: tuple[int, float, float, ProcessSet]) -> torch.Tensor:
    """What the ranks' gradients are multiplied with before they are put together again."""
    op, prescale, postscale, process_set = parameters
    members = (process_set.size() or 1) if op == Sum else 1
    factor = members * prescale * postscale
    return (grad if factor == 1 else grad * factor).contiguous()


class _Reducescatter(torch.autograd.Function):
    """Gradient: allgather of the gradient, times the size of the set for a sum, and times the factors."""

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
        return _start_reducescatter(tensor, name, op, prescale, postscale, process_set)[1].wait()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        whole = allgather(_scaled_gradient(grads[0], ctx.parameters), None, ctx.parameters[3])
        return whole, None, None, None, None, None


class _GroupedReducescatter(torch.autograd.Function):
    """Gradient: as for reducescatter, with a grouped allgather."""

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
        return tuple(_start_grouped_reducescatter(tensors, name, op, prescale, postscale, process_set)[1].wait())

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        whole = grouped_allgather([_scaled_gradient(grad, ctx.parameters) for grad in grads], None, ctx.parameters[3])
        return None, None, None, None, None, *whole


def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Reduces `tensor` over all ranks of the set; each keeps its rows of the result. Differentiable.

    Every rank gets dim0 // N rows, in rank order, and the first dim0 % N ranks one more.

    Arguments, the same on all ranks but for the tensor's elements:
        tensor: dense, contiguous, on the CPU, with one or more dimensions, of one shape and type on all ranks.
        op: Average (the default) or Sum.
        name: what matches the call between ranks; without it an automatic one is used, which counts unnamed calls, so
            all ranks have to make those in the same order.
        compression: Compression.fp16 sends floating-point elements as float16.
        process_set: the ranks that take part, this one among them.
        prescale_factor, postscale_factor: every input is multiplied by the first, the result by the second.

    ValueError: this rank's call is wrong (type, not contiguous, name pending, not a member); nothing was sent.
    HorovodInternalError: ranks disagree on type, shape or arguments (all members get it and can go on), a rank is lost,
    or Horovod is not initialised. Also for another op.
    """
    compressed, ctx = compression.compress(tensor)
    result: torch.Tensor
    if in_autograd([compressed]):
        result = _Reducescatter.apply(compressed, name, op, prescale_factor, postscale_factor, process_set)  # type: ignore[no-untyped-call]
    else:
        result = _start_reducescatter(compressed, name, op, prescale_factor, postscale_factor, process_set)[1].wait()
    return compression.decompress(result, ctx)


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Starts a reducescatter; synchronize(handle) gives this rank's rows.

    Returns an int at once. `tensor` must not change until synchronize() has returned. Arguments and errors as for
    reducescatter(); what fails between ranks is raised by synchronize().
    """
    return file(_start_reducescatter(tensor, name, op, prescale_factor, postscale_factor, process_set))


def grouped_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """Reduces and scatters several tensors together; none before every rank has submitted all. Differentiable.

    Every rank passes as many tensors, each as for reducescatter(), and gets a list of its rows of each. Other arguments
    and errors as for reducescatter().
    """
    pairs = [compression.compress(tensor) for tensor in tensors]
    compressed = [tensor for tensor, _ in pairs]
    results: Sequence[torch.Tensor]
    if in_autograd(compressed):
        results = _GroupedReducescatter.apply(name, op, prescale_factor, postscale_factor, process_set, *compressed)  # type: ignore[no-untyped-call]
    else:
        pending = _start_grouped_reducescatter(compressed, name, op, prescale_factor, postscale_factor, process_set)[1]
        results = pending.wait()
    return [compression.decompress(tensor, ctx) for tensor, (_, ctx) in zip(results, pairs, strict=True)]


def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Starts a grouped reducescatter; synchronize(handle) gives the list of this rank's rows of each.

    Returns one int for the group at once. The tensors must not change until synchronize() has returned. Arguments and
    errors as for grouped_reducescatter().
    """
    return file(_start_grouped_reducescatter(tensors, name, op, prescale_factor, postscale_factor, process_set))
