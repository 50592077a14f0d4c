"""What the rank tests share: inputs that every rank can compute for every rank, and the types that Horovod takes."""

from __future__ import annotations

import zlib

import torch

import horovod.torch as hvd

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
NUMBERS = (*INTEGERS, *FLOATS)
EVERYTHING = (*NUMBERS, torch.bool)
SHAPES = ((17,), (17, 17), (5, 17, 3), (), (0,), (0, 3), (3, 0))
FAILURES = (RuntimeError, hvd.HorovodInternalError)


def of_rank(rank: int, shape: tuple[int, ...], dtype: torch.dtype, case: str = "", low: int = -40) -> torch.Tensor:
    """The input of `rank`: small whole numbers, so that sums of three ranks are exact in every type."""
    seed = zlib.crc32(f"{case} {shape} {rank}".encode())
    generator = torch.Generator().manual_seed(seed)
    if dtype is torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    return torch.randint(max(low, 0) if dtype is torch.uint8 else low, 41, shape, generator=generator).to(dtype)


def of_all(shape: tuple[int, ...], dtype: torch.dtype, case: str = "", low: int = -40) -> list[torch.Tensor]:
    """The inputs of all ranks, in rank order."""
    return [of_rank(rank, shape, dtype, case, low) for rank in range(hvd.size())]


def assert_same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal in type, shape and every bit."""
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    assert torch.equal(actual, expected), f"{actual} != {expected}"


def assert_usable() -> None:
    """The session works: a small allreduce gives the right answer."""
    assert hvd.allreduce(torch.tensor([1.0]), op=hvd.Sum).item() == hvd.size()
