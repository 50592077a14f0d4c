"""The core's view of a torch tensor: its type code, and which tensors an operation takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

from horovod._common.calls import CPU, Call, Reduction
from horovod._common.native import core
from horovod.common.exceptions import HorovodInternalError
from horovod.torch import _private

_CODES: dict[torch.dtype, int] = {
    torch.uint8: core.DTYPE_UINT8,
    torch.int8: core.DTYPE_INT8,
    torch.int16: core.DTYPE_INT16,
    torch.int32: core.DTYPE_INT32,
    torch.int64: core.DTYPE_INT64,
    torch.float16: core.DTYPE_FLOAT16,
    torch.float32: core.DTYPE_FLOAT32,
    torch.float64: core.DTYPE_FLOAT64,
    torch.bool: core.DTYPE_BOOL,
    torch.bfloat16: core.DTYPE_BFLOAT16,
}
# Types that not every torch has, nor takes by DLPack: their bytes are given another view.
_VIEWED: dict[int, torch.dtype] = {
    getattr(core, f"DTYPE_{name.upper()}"): getattr(torch, name)
    for name in ("bool", "float8_e4m3fn", "float8_e5m2")
    if hasattr(torch, name)
}
_CODES.update({dtype: code for code, dtype in _VIEWED.items()})
_LARGE = 1 << 20  # bytes; the core recycles nothing smaller
_LARGEST_GUESS = 256 << 20  # bytes: from there on the driver's time counts little beside the data's
_BASE_CLASSES = (torch.Tensor, torch.nn.Parameter)  # other classes may want results of their own
_STRIDED = torch.strided
_BOOL = core.DTYPE_BOOL
_ADASUM = core.REDUCE_ADASUM
_ALLREDUCE = core.OP_ALLREDUCE
_REDUCESCATTER = core.OP_REDUCESCATTER
_ALLGATHER = core.OP_ALLGATHER
SHAPE_KEEPING = (_ALLREDUCE, core.OP_BROADCAST)  # kinds whose results have the shapes of the tensors
_REDUCING = (_ALLREDUCE, _REDUCESCATTER)
_SUMS = (core.REDUCE_AVERAGE, core.REDUCE_SUM)
_BOOL_REDUCTIONS = (core.REDUCE_MIN, core.REDUCE_MAX)


def _needs_a_look(*_: Any) -> None:
    """In the place of functions that this torch does not make possible."""


def _start_tensor(repeated: core.RepeatedAllreduce, tensor: torch.Tensor) -> bool:
    """start_tensor() where the core cannot read tensors itself."""
    is_usual = type(tensor) in _BASE_CLASSES and tensor.layout is _STRIDED and code_of(tensor.dtype) == repeated.dtype
    if not is_usual or not tensor.is_contiguous() or tensor.is_neg():
        return False
    repeated.start(tensor.data_ptr(), tensor.shape, tensor, place_of(tensor))
    return True


# The address of the stream that is current on a GPU.
current_stream = _private.stream_getter()

# Submit tensors without asking Python for more of them than the stream, in three quarters of the time, and half of it
# for groups. Nearly all can be; for others, and for those that cannot be sent at all, they give None, and start_tensor,
# which starts a RepeatedAllreduce, False.
enqueue_tensor, enqueue_tensors, start_tensor = core.tensor_calls(_BASE_CLASSES, current_stream) or (
    _needs_a_look,
    _needs_a_look,
    _start_tensor,
)

# Tells autograd that a tuple or list of tensors was written to: a backward pass that needs the old values raises.
mark_written = _private.version_counter()


def code_of(dtype: torch.dtype) -> int:
    """The core's code of a type; -1 for one that it does not know."""
    return _CODES.get(dtype, -1)


def place_of(tensor: torch.Tensor) -> int | tuple[int, int, Callable[[int], int]]:
    """Where a tensor lies, as the core takes it: for a GPU, with its current stream, whose work comes first.

    The stream that is current when somebody waits for the result waits for it, not the caller.
    """
    if tensor.is_cpu:
        return CPU
    device = tensor.get_device()
    return device, current_stream(device), current_stream


def _is_on_gpu(tensor: torch.Tensor) -> bool:
    """Whether the CUDA driver knows the tensor's memory. torch on ROCm says CUDA too."""
    return tensor.is_cuda and torch.version.hip is None


def is_on_usable_device(tensor: torch.Tensor) -> bool:
    return tensor.is_cpu or _is_on_gpu(tensor)


def transferable(tensor: torch.Tensor, operation: str) -> int:
    """The core's type code of a tensor that can be sent. Raises ValueError or NotImplementedError for any other."""
    try:
        # Sparse tensors are not contiguous.
        if (tensor.is_cpu or _is_on_gpu(tensor)) and tensor.is_contiguous() and not tensor.is_neg():
            return _CODES[tensor.dtype]
    except (AttributeError, KeyError, RuntimeError):
        pass  # _refusal() finds the reason, at no cost for tensors that are right
    raise _refusal(tensor, operation)


def _refusal(tensor: Any, operation: str) -> Exception:
    """Why a tensor cannot be sent."""
    if not isinstance(tensor, torch.Tensor):
        hint = {"ndarray": "torch.from_numpy(value)", "NoneType": ""}.get(type(tensor).__name__, "torch.tensor(value)")
        how = f"; pass {hint}" if hint else ""
        return ValueError(f"{operation}: expected a torch.Tensor, got {type(tensor).__name__}{how}")
    if not is_on_usable_device(tensor):
        return NotImplementedError(
            f"{operation}: the tensor is on device '{tensor.device}', but collectives on devices other than the CPU "
            "and CUDA GPUs are not built yet; pass tensor.cpu()"
        )
    if tensor.layout is not torch.strided:
        how = "pass tensor.to_dense()"
        if operation == "allreduce" and tensor.layout is torch.sparse_coo:
            how += ", or call hvd.sparse_allreduce_async()"
        return ValueError(f"{operation}: expected a dense tensor, got layout {tensor.layout}; {how}")
    if not tensor.is_contiguous():
        return ValueError(
            f"{operation}: the tensor of shape {list(tensor.shape)} and strides {list(tensor.stride())} is required "
            "to be contiguous; pass tensor.contiguous()"
        )
    if tensor.is_neg():
        return ValueError(f"{operation}: the tensor is negated lazily; pass tensor.resolve_neg()")
    names = ", ".join(str(dtype).removeprefix("torch.") for dtype in _CODES)
    return ValueError(f"{operation}: tensor type {tensor.dtype} is not supported; supported are {names}")


def guessed_result(call: Call, reduction: Reduction, tensor: torch.Tensor) -> torch.Tensor | None:
    """Memory of torch for a result whose shape the core will know, if all ranks give as many rows; None on CPUs.

    On a GPU the core would ask the driver for it, and wait for the GPU to give it back; torch's own belongs to the
    stream that is current, as any result there. None for a wrong call, of which the core says what is wrong, and for
    the large result of an allgather, to which others may add little.
    """
    if not tensor.is_cuda or tensor.dim() == 0:
        return None
    ranks = reduction.process_set.ranks or ()
    rank = core.rank() if core.is_initialized() else -1
    if rank not in ranks:
        return None
    rows, *rest = tensor.shape
    if call.kind == _ALLGATHER:
        if tensor.nbytes * len(ranks) > _LARGEST_GUESS:
            return None
        rows *= len(ranks)
    elif call.kind == _REDUCESCATTER:
        rows = rows // len(ranks) + (ranks.index(rank) < rows % len(ranks))
    elif call.splits:
        if min(call.splits) < 0 or sum(call.splits) > rows:
            return None
        rows = sum(call.splits)
    try:
        result = torch.empty((rows, *rest), dtype=tensor.dtype, device=tensor.device)
    except torch.cuda.OutOfMemoryError:
        return None  # it may be smaller
    return result if result.numel() > 0 else None


def output_of(native: Any) -> torch.Tensor:
    """The result of an operation whose shape only the core knew."""
    result: torch.Tensor | None = native.result()
    if result is not None:
        return result
    result = from_dlpack(native.output_dlpack())
    viewed = _VIEWED.get(native.dtype)
    return result if viewed is None else result.view(viewed)


def reducible(tensor: torch.Tensor, op: int, operation: str) -> int:
    """As transferable(), for a tensor that is to be reduced with `op`."""
    code = transferable(tensor, operation)
    if op == _ADASUM and not tensor.is_floating_point():
        raise ValueError(f"{operation}: tensor type {tensor.dtype} is not supported with op=Adasum; use a float type")
    if code == _BOOL and op not in _BOOL_REDUCTIONS:
        raise ValueError(f"{operation}: tensor type torch.bool is not supported with this op; use Min or Max")
    return code


def sparse_tensor(indices: torch.Tensor, values: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """A sparse COO tensor where its values are, whatever device a program has set for new tensors."""
    return torch.sparse_coo_tensor(indices, values, shape, device=values.device, check_invariants=False)


def result_at_once(tensor: Any) -> torch.Tensor | None:
    """Memory for a result of a tensor that is small or on a GPU, of its shape and type; None for any other."""
    if type(tensor) not in _BASE_CLASSES or tensor.layout is not _STRIDED:
        return None
    if tensor.is_cuda or (tensor.is_cpu and tensor.nbytes < _LARGE):
        return torch.empty_like(tensor)
    return None


def new_result(tensor: torch.Tensor, code: int) -> torch.Tensor:
    """Memory for a result of the tensor's shape and type, with the code `code`.

    The core allocates large results, because it recycles pages: touching new ones costs half as much as reducing them.
    """
    if tensor.nbytes < _LARGE or not tensor.is_cpu or type(tensor) not in _BASE_CLASSES:
        return torch.empty_like(tensor)
    result: torch.Tensor = from_dlpack(core.new_output(tensor.shape, code))
    return result.view(_VIEWED[code]) if code in _VIEWED else result


def check(call: Call, reduction: Reduction, tensor: torch.Tensor) -> int:
    """The core's type code of a tensor. An error that says why, if the call does not take it with this reduction."""
    if reduction.op == _ADASUM or call.kind == _REDUCESCATTER:
        _check_unusual(call, reduction, tensor)
    code = transferable(tensor, call.prefix)
    if code == _BOOL and call.kind in _REDUCING:
        reducible(tensor, reduction.op, call.prefix)
    return code


def _check_unusual(call: Call, reduction: Reduction, tensor: torch.Tensor) -> None:
    """The requirements of Adasum and reducescatter that other reductions do not have."""
    op, caller = reduction.op, call.prefix
    if call.kind == _REDUCESCATTER:
        if op not in _SUMS:
            raise HorovodInternalError(f"{caller}: the only ops are Average and Sum, got op={op!r}")
        reducible(tensor, op, caller)
        if tensor.dim() == 0:
            raise ValueError(f"{caller}: a tensor without dimensions has no rows to scatter")
    elif call.kind == _ALLREDUCE:
        if reduction.process_set.process_set_id != 0:
            raise NotImplementedError(f"{caller}: op=Adasum is only supported on the global process set")
        reducible(tensor, op, caller)


def check_one_device(tensors: Sequence[torch.Tensor], operation: str) -> None:
    """Raises HorovodInternalError unless all tensors of a group are on one device."""
    devices = {str(tensor.device) for tensor in tensors if isinstance(tensor, torch.Tensor)}
    if len(devices) > 1:
        raise HorovodInternalError(
            f"{operation}: all tensors of a group must be on one device, found {', '.join(sorted(devices))}"
        )
