"""Allgather, grouped allgather and sparse allreduce."""

from __future__ import annotations

import pytest
import torch

import horovod.torch as hvd
from world import EVERYTHING, FAILURES, assert_same, assert_usable, of_all, of_rank

ROWS = (15, 0, 23, 4, 7)


@pytest.mark.parametrize("dtype", EVERYTHING)
def test_rows_are_concatenated_in_rank_order(dtype: torch.dtype) -> None:
    for shape in ((17,), (17, 17), (3, 17, 5), (1,), (0,), (4, 0), (0, 3)):
        inputs = of_all(shape, dtype, "equal")
        own = inputs[hvd.rank()].clone()
        assert_same(hvd.allgather(own), torch.cat(inputs))
        assert_same(hvd.synchronize(hvd.allgather_async(own)), torch.cat(inputs))
        assert_same(own, inputs[hvd.rank()])


@pytest.mark.parametrize("dtype", EVERYTHING)
def test_ranks_may_give_different_numbers_of_rows(dtype: torch.dtype) -> None:
    for rest in ((), (3,), (2, 5)):
        inputs = [of_rank(rank, (ROWS[rank], *rest), dtype, "rows") for rank in range(hvd.size())]
        assert_same(hvd.allgather(inputs[hvd.rank()]), torch.cat(inputs))


def test_every_rank_may_give_nothing() -> None:
    assert_same(hvd.allgather(torch.empty(0, 3)), torch.empty(0, 3))


def test_rows_may_change_under_one_name() -> None:
    for step in range(6):
        rows = [(rank + step) % 4 for rank in range(hvd.size())]
        result = hvd.allgather(torch.full((rows[hvd.rank()], 2), float(hvd.rank())), name="changing")
        expected = torch.cat([torch.full((n, 2), float(rank)) for rank, n in enumerate(rows)])
        assert_same(result, expected)


def test_a_batch_runs_asynchronously() -> None:
    handles = [hvd.allgather_async(of_rank(hvd.rank(), (9, 2), t, "batch"), name=f"batch.{t}") for t in EVERYTHING]
    for dtype, handle in zip(EVERYTHING, handles, strict=True):
        assert_same(hvd.synchronize(handle), torch.cat(of_all((9, 2), dtype, "batch")))


def test_the_result_is_an_ordinary_tensor() -> None:
    result = hvd.allgather(torch.ones(2))
    result += 1
    result.resize_(1)
    assert_same(result, torch.tensor([2.0]))
    kept = [hvd.allgather(torch.full((1000,), float(i))) for i in range(20)]
    assert all(tensor.eq(i).all() for i, tensor in enumerate(kept))


def test_a_scalar_cannot_be_gathered() -> None:
    with pytest.raises((*FAILURES, ValueError)):
        hvd.allgather(torch.tensor(1.0), name="scalar")
    assert_usable()


def test_groups_gather_each_member() -> None:
    own = [of_rank(hvd.rank(), (ROWS[hvd.rank()], 2), torch.float32, "g0"), of_rank(hvd.rank(), (3,), torch.int8, "g1")]
    expected = [
        torch.cat([of_rank(rank, (ROWS[rank], 2), torch.float32, "g0") for rank in range(hvd.size())]),
        torch.cat(of_all((3,), torch.int8, "g1")),
    ]
    own[0].requires_grad_()
    for results in (
        hvd.grouped_allgather(own, name="group"),
        hvd.grouped_allgather(one for one in own),  # type: ignore[arg-type]
        hvd.synchronize(hvd.grouped_allgather_async(own)),
    ):
        for result, wanted in zip(results, expected, strict=True):
            assert_same(result, wanted)


# Gradients


def test_the_gradient_is_the_average_of_the_own_rows() -> None:
    rows = [rank + 2 for rank in range(hvd.size())]
    x = torch.ones(rows[hvd.rank()], 3, requires_grad=True)
    gathered = hvd.allgather(x)
    weights = torch.arange(float(sum(rows))).repeat_interleave(3).view(-1, 3) * (hvd.rank() + 1)
    gathered.backward(weights)
    begin = sum(rows[: hvd.rank()])
    mean = sum(rank + 1 for rank in range(hvd.size())) / hvd.size()
    expected = torch.arange(float(begin), begin + rows[hvd.rank()]).repeat_interleave(3).view(-1, 3) * mean
    torch.testing.assert_close(x.grad, expected)


def test_the_gradient_of_a_group() -> None:
    inputs = [torch.ones(hvd.rank() + 1, requires_grad=True), torch.ones(2, 2, requires_grad=True)]
    first, second = hvd.grouped_allgather(inputs)
    (first.sum() + 2 * second.sum()).backward()
    assert_same(inputs[0].grad, torch.ones(hvd.rank() + 1))
    assert_same(inputs[1].grad, torch.full((2, 2), 2.0))


# Sparse allreduce


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("op", ["Sum", "Average"])
def test_sparse_allreduce_equals_the_dense_one(dtype: torch.dtype, op: str) -> None:
    for rows, width in ((6, ()), (9, (4,)), (5, (2, 3))):
        mine = [(hvd.rank() + 1) % rows, 2, 2]
        values = of_rank(hvd.rank(), (3, *width), dtype, "sparse")
        sparse = torch.sparse_coo_tensor([mine], values, (rows, *width), check_invariants=True)
        finish = hvd.sparse_allreduce_async(sparse, name=f"sparse{rows}", op=getattr(hvd, op))
        result = finish()
        assert result.is_sparse
        assert result.shape == sparse.shape
        torch.testing.assert_close(
            result.to_dense(), hvd.allreduce(sparse.to_dense(), op=getattr(hvd, op)), rtol=1e-6, atol=1e-12
        )


@pytest.mark.usefixtures("several_ranks")
def test_a_sparse_average_of_integers_is_rounded_as_a_dense_one() -> None:
    values = torch.tensor([-2 * hvd.size() - 1, 2 * hvd.size() + 1])
    sparse = torch.sparse_coo_tensor([[0, 2]], values, (4,), check_invariants=True)
    averages = hvd.sparse_allreduce_async(sparse, name="whole", op=hvd.Average)()._values()
    dense = hvd.allreduce(values[:1] if hvd.rank() == 0 else torch.zeros_like(values[:1]), name="dense", op=hvd.Average)
    assert dense.tolist() == [-2]
    assert averages.tolist() == [-2, 2] * hvd.size()


def test_sparse_allreduce_of_nothing() -> None:
    empty = torch.sparse_coo_tensor(torch.empty(1, 0), torch.empty(0, 2), (4, 2), check_invariants=True)
    assert_same(hvd.sparse_allreduce_async(empty, name="none", op=hvd.Sum)().to_dense(), torch.zeros(4, 2))
    one = torch.sparse_coo_tensor([[1]], torch.ones(1, 2), (4, 2), check_invariants=True)
    result = hvd.sparse_allreduce_async(one if hvd.rank() == 0 else empty, name="one", op=hvd.Sum)()
    assert_same(result.to_dense(), one.to_dense())
