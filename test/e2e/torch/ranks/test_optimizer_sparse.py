"""DistributedOptimizer and sparse gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import horovod.torch as hvd
from training import assert_all_ranks_hold, wrap


@pytest.mark.parametrize("as_dense", [False, True])
def test_sparse_embeddings_train_like_dense_ones(as_dense: bool) -> None:
    torch.manual_seed(5)
    sparse = nn.Embedding(7, 3, sparse=True).double()
    dense = nn.Embedding(7, 3, _weight=sparse.weight.detach().clone())
    pairs = [
        (sparse, wrap(sparse, torch.optim.SGD(sparse.parameters(), lr=0.5), sparse_as_dense=as_dense)),
        (dense, wrap(dense, torch.optim.SGD(dense.parameters(), lr=0.5))),
    ]
    for model, optimizer in pairs:
        for step in range(3):
            optimizer.zero_grad()
            rows = torch.tensor([hvd.rank(), (2 * hvd.rank() + step) % 7, 3, 3])
            if step == hvd.rank() == 0:
                rows = rows[:0]
            model(rows).square().sum().backward()
            optimizer.step()
    torch.testing.assert_close(sparse.weight, dense.weight, rtol=1e-6, atol=1e-9)
    assert_all_ranks_hold(sparse)


@pytest.mark.parametrize("compression", [hvd.Compression.none, hvd.Compression.fp16])
def test_a_gradient_may_be_dense_in_one_step_and_sparse_in_another(compression: Any) -> None:
    """As of a matrix that looks words up, and is multiplied with in some steps."""
    table = nn.Parameter(torch.zeros(4, 2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([table], lr=1.0), op=hvd.Sum, compression=compression)
    expected = torch.zeros(4, 2)
    for step, is_sparse in enumerate((False, True, False, True, True, False)):
        optimizer.zero_grad()
        row = torch.tensor([(hvd.rank() + step) % 4])
        rows = nn.functional.embedding(row, table, sparse=True) if is_sparse else table[row]
        (rows * (hvd.rank() + 1)).sum().backward()
        optimizer.step()
        for rank in range(hvd.size()):
            expected[(rank + step) % 4] -= rank + 1
        assert torch.equal(table.detach(), expected)


def test_sparse_adam() -> None:
    torch.manual_seed(5)
    model = nn.Embedding(7, 3, sparse=True)
    optimizer = wrap(model, torch.optim.SparseAdam(model.parameters(), lr=0.1))
    for step in range(3):
        optimizer.zero_grad()
        model(torch.tensor([hvd.rank(), step])).square().sum().backward()
        optimizer.step()
    assert_all_ranks_hold(model)


@pytest.mark.parametrize("as_dense", [False, True])
@pytest.mark.parametrize("first_user", [0, 1])
def test_a_rank_may_not_use_a_sparse_parameter_in_its_first_step(as_dense: bool, first_user: int) -> None:
    torch.manual_seed(5)
    model = nn.ModuleDict({"words": nn.Embedding(7, 3, sparse=True), "head": nn.Linear(3, 2)}).double()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.5), sparse_as_dense=as_dense, op=hvd.Sum)
    first_user %= hvd.size()
    before = model["words"].weight.detach().clone()
    for step in range(3):
        optimizer.zero_grad()
        rows = torch.ones(2, 3, dtype=torch.float64)
        if step > 0 or hvd.rank() == first_user:
            rows = model["words"](torch.tensor([2, 4]))
        model["head"](rows).sum().backward()
        optimizer.step()
    assert not torch.equal(model["words"].weight[2], before[2])
    assert torch.equal(model["words"].weight[3], before[3])
    assert_all_ranks_hold(model)


@pytest.mark.parametrize("as_dense", [False, True])
def test_a_rank_that_does_not_use_a_sparse_parameter_gets_a_sparse_gradient(as_dense: bool) -> None:
    """SparseAdam takes no other."""
    torch.manual_seed(5)
    model = nn.Embedding(7, 3, sparse=True)
    optimizer = wrap(model, torch.optim.SparseAdam(model.parameters(), lr=0.1), sparse_as_dense=as_dense)
    for _ in range(2):
        optimizer.zero_grad()
        if hvd.rank() == 0:
            model(torch.tensor([2, 4])).square().sum().backward()
        optimizer.step()
    assert_all_ranks_hold(model)


def test_a_sparse_parameter_that_nobody_uses_at_first() -> None:
    torch.manual_seed(5)
    model = nn.ModuleDict({"words": nn.Embedding(7, 3, sparse=True), "head": nn.Linear(3, 2)})
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.5))
    for step in range(3):
        optimizer.zero_grad()
        rows = model["words"](torch.tensor([1, 1])) if step == 1 and hvd.rank() == 0 else torch.ones(2, 3)
        model["head"](rows).sum().backward()
        optimizer.step()
    assert_all_ranks_hold(model)
