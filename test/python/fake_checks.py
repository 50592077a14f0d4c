"""What the real core refuses before it submits anything, in its words: test_fake_core.py compares the two."""

from __future__ import annotations

import importlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch

OPS = ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter", "barrier", "join", "adasum")
REDUCTIONS = ("Average", "Sum", "Adasum", "Min", "Max", "Product")
DTYPES = {
    "uint8": torch.uint8,
    "int8": torch.int8,
    "uint16": torch.uint16,
    "int16": torch.int16,
    "int32": torch.int32,
    "int64": torch.int64,
    "float16": torch.float16,
    "float32": torch.float32,
    "float64": torch.float64,
    "bool": torch.bool,
    "bfloat16": torch.bfloat16,
    "float8_e4m3fn": getattr(torch, "float8_e4m3fn", torch.uint8),  # not before torch 2.1
    "float8_e5m2": getattr(torch, "float8_e5m2", torch.uint8),
}
LONGEST_NAME = 4096
NOT_INITIALIZED = "Horovod has not been initialized; use hvd.init()."


def internal_error(text: str) -> Exception:
    """A HorovodInternalError of the package that is imported now."""
    error: Exception = importlib.import_module("horovod.common.exceptions").HorovodInternalError(text)
    return error


@dataclass
class Call:
    """One submitted operation."""

    op: int
    name: str
    data_ptr: int
    output_ptr: int
    shape: tuple[int, ...]
    dtype: int
    device: int
    reduce_op: int
    prescale: float
    postscale: float
    root_rank: int
    process_set: int

    @property
    def kind(self) -> str:
        return OPS[self.op]

    @property
    def torch_type(self) -> torch.dtype:
        return list(DTYPES.values())[self.dtype]


def check_code(what: str, code: int, names: Collection[str]) -> None:
    if not 0 <= code < len(names):
        raise ValueError(f"{what} must be 0..{len(names) - 1}, not {code}")


def check_codes(call: Call) -> None:
    check_code("kind", call.op, OPS)
    check_code("dtype", call.dtype, DTYPES)
    check_code("op", call.reduce_op, REDUCTIONS)


def check_operation(call: Call) -> None:
    """What one rank can check without knowing what is in flight."""
    about = f'{call.kind} "{call.name}"'
    if call.device != -1:
        raise ValueError(
            f"tensor '{call.name}' on GPU {call.device}: there is no CUDA driver"
        )  # the real one may have it
    if call.kind in ("allreduce", "reducescatter"):
        _check_reduction(call, about)
    if call.kind in ("allreduce", "broadcast") and 0 not in call.shape and not (call.data_ptr and call.output_ptr):
        lacking = "input" if call.output_ptr else "output"
        shape = list(call.shape)
        raise ValueError(f"{about}: expected memory for the {lacking} of shape {shape}, got a null pointer")


def _check_reduction(call: Call, about: str) -> None:
    dtype, reduction = list(DTYPES)[call.dtype], REDUCTIONS[call.reduce_op]
    if call.kind == "reducescatter" and reduction not in ("Average", "Sum"):
        raise internal_error(f"{about}: expected Average or Sum, not {reduction}")
    if reduction == "Adasum":
        if not call.torch_type.is_floating_point:
            raise ValueError(f'adasum "{call.name}": Adasum needs a floating-point type, not {dtype}')
    elif dtype == "bool" and reduction not in ("Min", "Max"):
        raise ValueError(f"{about}: {dtype} tensors have no reduction {reduction}")
    for what, factor in (("prescale_factor", call.prescale), ("postscale_factor", call.postscale)):
        if dtype == "bool" and factor != 1.0:
            raise ValueError(f"{about}: bool tensors cannot be multiplied; expected {what} 1, got {factor:g}")


def check_submission(
    call: Call,
    splits: Sequence[int],
    sets: Mapping[int, Sequence[int]],
    rank: int,
    pending: Collection[tuple[int, str]],
) -> None:
    """What depends on process sets and on the operations that are in flight."""
    name, process_set = call.name, call.process_set
    if call.kind == "alltoall" and process_set in sets and call.shape:
        _check_splits(call, splits, len(sets[process_set]))
    if not 1 <= len(name) <= LONGEST_NAME:
        shown = name if len(name) <= 64 else f"{name[:64]}..."
        raise ValueError(f'tensor name "{shown}" has {len(name)} bytes; expected 1 to {LONGEST_NAME}')
    if process_set not in sets:
        raise ValueError(f"process set {process_set} is not registered ({name})")
    if rank not in sets[process_set]:
        raise ValueError(f"rank {rank} is not a member of process set {process_set} ({name})")
    if (process_set, name) in pending:
        where = f" of process set {process_set}" if process_set else ""
        raise ValueError(f'an operation named "{name}"{where} is pending already')
    if call.kind == "broadcast" and call.root_rank not in sets[process_set]:
        raise ValueError(f'broadcast "{name}": root rank {call.root_rank} is not in process set {process_set}')


def _check_splits(call: Call, splits: Sequence[int], members: int) -> None:
    about, rows = f'alltoall "{call.name}"', call.shape[0]
    if not splits and rows % members:
        raise ValueError(
            f"{about}: without splits the first dimension must be divisible by the {members} ranks of the process set; "
            f"it is {rows}"
        )
    if splits and len(splits) != members:
        raise ValueError(
            f"{about}: expected one split for each of the {members} ranks of the process set, got {len(splits)}"
        )
    if min(splits, default=0) < 0:
        raise ValueError(f"{about}: splits cannot be negative, got {next(split for split in splits if split < 0)}")
    if sum(splits) > rows:
        raise ValueError(f"{about}: the splits add up to {sum(splits)}, but the first dimension is {rows}")


def check_ranks(ranks: Sequence[int], world: int) -> None:
    """Whether the ranks may be a process set."""
    if not ranks:
        raise ValueError("a process set needs at least one rank")
    for rank in sorted(ranks):
        if not 0 <= rank < world:
            raise ValueError(f"rank {rank} of a process set is not in 0 .. {world - 1}")
    for one, other in zip(sorted(ranks), sorted(ranks)[1:], strict=False):
        if one == other:
            raise ValueError(f"rank {one} is listed twice in a process set")


def byte_size(call: Call) -> int:
    return math.prod(call.shape) * call.torch_type.itemsize
