"""Floats of 8 bits, which torch has from 2.1 on, and for which it has no operators: they are compared as float32."""

from __future__ import annotations

import pytest
import torch

import horovod.torch as hvd
from world import FAILURES, assert_usable

TYPES = [getattr(torch, name) for name in ("float8_e4m3fn", "float8_e5m2") if hasattr(torch, name)]
pytestmark = pytest.mark.parametrize("dtype", TYPES)


def assert_is(actual: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    assert actual.dtype is dtype
    assert torch.equal(actual.float(), expected), f"{actual.float()} != {expected}"


@pytest.mark.parametrize("rows", [3, 400000])  # the core has memory for large results
def test_reductions(dtype: torch.dtype, rows: int) -> None:
    wide = torch.arange(3 * rows).reshape(rows, 3).remainder(3).float()  # 0, 1, 2
    own = wide.to(dtype)
    assert_is(hvd.allreduce(own, op=hvd.Sum), wide * hvd.size(), dtype)
    assert_is(hvd.allreduce(own), wide, dtype)
    assert_is(hvd.allreduce(own, op=hvd.Sum, prescale_factor=0.5), wide * hvd.size() / 2, dtype)
    assert_is(hvd.allreduce((wide - hvd.rank()).to(dtype), op=hvd.Min), wide - hvd.size() + 1, dtype)
    assert_is(hvd.allreduce(own, op=hvd.Adasum), wide, dtype)
    assert_is(hvd.allreduce(own, compression=hvd.Compression.fp16), wide, dtype)
    parts = hvd.allgather(hvd.reducescatter(own, op=hvd.Sum))
    assert_is(parts, wide * hvd.size(), dtype)


def test_what_is_too_large_is_infinite_or_the_largest_value(dtype: torch.dtype) -> None:
    own = torch.tensor([448.0, -448.0, 1.0]).to(dtype)
    most = 448.0 if dtype is torch.float8_e4m3fn else float("inf")
    product = hvd.allreduce(own, op=hvd.Max, postscale_factor=256.0)
    assert_is(product, torch.tensor([most, -most, 256.0]), dtype)


def test_movements(dtype: torch.dtype) -> None:
    ranks, rank = hvd.size(), hvd.rank()
    gathered = hvd.allgather(torch.full((rank + 1, 2), float(rank)).to(dtype))
    assert_is(gathered, torch.cat([torch.full((r + 1, 2), float(r)) for r in range(ranks)]), dtype)
    assert_is(hvd.broadcast(torch.full((5,), float(rank)).to(dtype), 0), torch.zeros(5), dtype)
    received = hvd.alltoall(torch.arange(float(ranks)).to(dtype))
    assert_is(received, torch.full((ranks,), float(rank)), dtype)
    assert_is(hvd.allgather(torch.empty((0, 2), dtype=dtype)), torch.empty((0, 2)), dtype)


@pytest.mark.usefixtures("several_ranks")
def test_another_type_on_another_rank_is_an_error_that_names_both(dtype: torch.dtype) -> None:
    own = torch.ones(3).to(dtype) if hvd.rank() == 0 else torch.ones(3, dtype=torch.uint8)
    with pytest.raises(FAILURES, match=f"{str(dtype).removeprefix('torch.')}.*uint8|uint8.*float8"):
        hvd.allreduce(own, op=hvd.Sum, name="mixed")
    assert_usable()
