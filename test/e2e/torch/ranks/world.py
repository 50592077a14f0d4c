"""What the rank tests share: inputs that every rank can compute for every rank, and the types that Horovod takes."""

from __future__ import annotations

import functools
import operator
import zlib
from typing import Any

import torch
from torch import nn

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


def small_model(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))
    model.register_parameter("counter", nn.Parameter(torch.tensor([seed, 2]), requires_grad=False))
    return model


def assert_equal_on_all_ranks(value: Any) -> None:
    """Compares a nest of dicts, lists and tensors with rank 0's, types included."""
    everybodys = hvd.allgather_object(value)
    for other in everybodys[1:]:
        assert_same_nest(other, everybodys[0])


def assert_same_nest(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key, value in one.items():
            assert_same_nest(value, other[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_same_nest(a, b)
    else:
        assert one == other


def total(tensors: list[torch.Tensor]) -> torch.Tensor:
    """The sum in the type of the tensors, with the wrap-around of integers."""
    return functools.reduce(operator.add, tensors)


def scaled(tensor: torch.Tensor, factor: float) -> torch.Tensor:
    """One scaling by its definition."""
    if not tensor.dtype.is_floating_point:
        return (tensor.double() * factor).trunc().to(tensor.dtype)
    if tensor.dtype is torch.float64:
        return tensor * factor
    return (tensor.float() * torch.tensor(factor, dtype=torch.float32)).to(tensor.dtype)
