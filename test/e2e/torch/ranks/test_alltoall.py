"""Alltoall."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch

import horovod.torch as hvd
from world import EVERYTHING, FAILURES, assert_same, assert_usable, of_all, of_rank

# splits[i][j]: rows that rank i sends to rank j; the left upper corner of the size of the world is used.
TABLES: dict[str, Callable[[int, int], int]] = {
    "equal": lambda i, j: 3,
    "rank + 1 each": lambda i, j: i + 1,
    "different for each": lambda i, j: 2 * i + j,
    "one rank sends nothing": lambda i, j: 0 if i == 0 else j + 1,
    "one rank receives nothing": lambda i, j: 0 if j == 0 else i + 2,
    "only to itself": lambda i, j: 4 if i == j else 0,
    "nothing at all": lambda i, j: 0,
}


def table(case: str) -> list[list[int]]:
    ranks = range(hvd.size())
    return [[TABLES[case](i, j) for j in ranks] for i in ranks]


def parts(case: str, rest: tuple[int, ...], dtype: torch.dtype, unsent: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """What this rank sends, with rows that nobody gets behind, and what it must receive."""
    splits = table(case)
    inputs = [of_rank(i, (sum(splits[i]) + unsent, *rest), dtype, case) for i in range(hvd.size())]
    pieces = [torch.split(inputs[i][: sum(splits[i])], splits[i])[hvd.rank()] for i in range(hvd.size())]
    return inputs[hvd.rank()], torch.cat(pieces)


@pytest.mark.parametrize("dtype", EVERYTHING)
@pytest.mark.parametrize("case", TABLES)
def test_every_part_arrives(case: str, dtype: torch.dtype) -> None:
    splits = table(case)
    received = torch.tensor([row[hvd.rank()] for row in splits], dtype=torch.int32)
    for rest in ((), (3,), (2, 5), (0,)):
        for unsent in (0, 2):
            own, expected = parts(case, rest, dtype, unsent)
            given = own.clone()
            output, counts = hvd.alltoall(given, splits[hvd.rank()])
            assert_same(output, expected)
            assert_same(counts, received)
            assert_same(given, own)


@pytest.mark.parametrize("dtype", EVERYTHING)
def test_without_splits_every_rank_gets_an_equal_share(dtype: torch.dtype) -> None:
    for rest in ((), (17,), (3, 2)):
        inputs = of_all((hvd.size() * 2, *rest), dtype, "equal")
        expected = torch.cat([tensor.chunk(hvd.size())[hvd.rank()] for tensor in inputs])
        assert_same(hvd.alltoall(inputs[hvd.rank()]), expected)
        output, counts = hvd.synchronize(hvd.alltoall_async(inputs[hvd.rank()]))
        assert_same(output, expected)
        assert_same(counts, torch.full((hvd.size(),), 2, dtype=torch.int32))


def int32_tensor(splits: list[int]) -> torch.Tensor:
    return torch.tensor(splits, dtype=torch.int32)


@pytest.mark.parametrize("form", [list, tuple, numpy.array, numpy.int8, int32_tensor])
def test_splits_come_in_several_forms(form: Any) -> None:
    own, expected = parts("different for each", (2,), torch.float32)
    output, counts = hvd.alltoall(own, splits=form(table("different for each")[hvd.rank()]), name="forms")
    assert_same(output, expected)
    assert counts.dtype == torch.int32
    assert counts.device.type == "cpu"


def test_empty_splits_mean_equal_shares() -> None:
    own = torch.arange(float(hvd.size()))
    output, counts = hvd.alltoall(own, splits=[])
    assert_same(output, torch.full((hvd.size(),), float(hvd.rank())))
    assert_same(counts, torch.ones(hvd.size(), dtype=torch.int32))


def test_an_empty_tensor() -> None:
    output, counts = hvd.alltoall(torch.empty(0, 4), splits=[0] * hvd.size())
    assert_same(output, torch.empty(0, 4))
    assert_same(counts, torch.zeros(hvd.size(), dtype=torch.int32))
    assert_same(hvd.alltoall(torch.empty(0)), torch.empty(0))


def test_splits_may_change_under_one_name() -> None:
    for step in range(8):
        splits = [[(i + j + step) % 3 for j in range(hvd.size())] for i in range(hvd.size())]
        mine = splits[hvd.rank()]
        output, counts = hvd.alltoall(torch.full((sum(mine) + step % 2,), float(hvd.rank())), mine, name="changing")
        received = [row[hvd.rank()] for row in splits]
        assert_same(output, torch.cat([torch.full((n,), float(i)) for i, n in enumerate(received)]))
        assert counts.tolist() == received


def test_a_batch_runs_asynchronously() -> None:
    handles = [
        hvd.alltoall_async(parts("rank + 1 each", (2,), t)[0], table("rank + 1 each")[hvd.rank()], name=f"batch.{t}")
        for t in EVERYTHING
    ]
    for dtype, handle in zip(EVERYTHING, handles, strict=True):
        output, _ = hvd.synchronize(handle)
        assert_same(output, parts("rank + 1 each", (2,), dtype)[1])


def test_large_parts() -> None:
    rows = 150_001
    own = torch.arange(rows * hvd.size(), dtype=torch.int32) + hvd.rank() * 1_000_000
    mine = slice(hvd.rank() * rows, (hvd.rank() + 1) * rows)
    everyone = [torch.arange(rows * hvd.size(), dtype=torch.int32)[mine] + i * 1_000_000 for i in range(hvd.size())]
    assert_same(hvd.alltoall(own), torch.cat(everyone))


# Mistakes of one rank: at the call


def n() -> int:
    return hvd.size()


WRONG_SPLITS: dict[str, tuple[Callable[[], Any], str]] = {
    "int64": (lambda: torch.ones(n(), dtype=torch.int64), "torch.int64"),
    "float": (lambda: torch.ones(n()), "torch.float32"),
    "not whole": (lambda: [0.5] * n(), "whole"),
    "words": (lambda: ["a"] * n(), "splits"),
    "two dimensions": (lambda: torch.ones(n(), 1, dtype=torch.int32), "one dimension"),
    "nested": (lambda: [[1]] * n(), "one dimension"),
    "too many": (lambda: [1] * (n() + 1), "one split for each"),
    "more than there is": (lambda: [7] * n(), "add up"),
    "negative": (lambda: [-1] * n(), "negative"),
}


@pytest.mark.parametrize("case", WRONG_SPLITS)
def test_wrong_splits_are_refused_at_the_call(case: str) -> None:
    make, words = WRONG_SPLITS[case]
    with pytest.raises(ValueError, match=words):
        hvd.alltoall(torch.ones(3 * n(), 2), splits=make(), name="wrong")
    with pytest.raises(ValueError, match=words):
        hvd.alltoall_async(torch.ones(3 * n(), 2), splits=make(), name="wrong")
    assert_usable()


@pytest.mark.usefixtures("several_ranks")
def test_rows_that_cannot_be_shared_equally_are_refused() -> None:
    with pytest.raises(ValueError, match="divisible"):
        hvd.alltoall(torch.ones(hvd.size() + 1))
    assert_usable()


def test_what_cannot_be_sent_is_refused() -> None:
    with pytest.raises(ValueError, match="contiguous"):
        hvd.alltoall(torch.ones(2 * n(), 2 * n()).t()[::2])
    with pytest.raises(ValueError, match="complex64"):
        hvd.alltoall(torch.ones(n(), dtype=torch.complex64))
    with pytest.raises(ValueError, match=r"torch\.Tensor"):
        hvd.alltoall([1.0] * n())
    assert_usable()


def test_a_scalar_has_no_rows() -> None:
    with pytest.raises((*FAILURES, ValueError)):
        hvd.alltoall(torch.tensor(1.0), name="scalar")
    assert_usable()


# Gradients


def test_the_gradient_goes_back_to_where_the_rows_came_from() -> None:
    splits = table("different for each")
    mine = splits[hvd.rank()]
    x = torch.ones(sum(mine) + 1, 2, requires_grad=True)
    output, counts = hvd.alltoall(x, mine)
    assert not counts.requires_grad
    # Every receiver weighs what it got with its own rank + 1, so each row's gradient tells where it went.
    (output * (hvd.rank() + 1)).sum().backward()
    expected = torch.cat([torch.full((rows, 2), float(j + 1)) for j, rows in enumerate(mine)] + [torch.zeros(1, 2)])
    assert_same(x.grad, expected)


def test_the_gradient_of_equal_shares() -> None:
    x = torch.ones(2 * n(), requires_grad=True)
    hvd.alltoall(x).mul(hvd.rank() + 1).sum().backward()
    assert_same(x.grad, torch.arange(1.0, n() + 1).repeat_interleave(2))
