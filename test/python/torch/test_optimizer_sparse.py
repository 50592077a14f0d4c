"""DistributedOptimizer and gradients that are unusual: sparse ones above all."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from horovod.torch._tensors import code_of
from small_net import net, sent, sent_names, wrap


def embedding_loss(model: nn.Module) -> torch.Tensor:
    return model(torch.tensor([0, 2, 2])).square().sum()


def test_sparse_gradients_stay_sparse(fake_pair: Any) -> None:
    model = nn.Embedding(5, 2, sparse=True)
    optimizer = wrap(fake_pair.hvd, model)
    embedding_loss(model).backward()
    expected = model.weight.grad.to_dense()
    optimizer.synchronize()
    assert model.weight.grad.is_sparse
    # The other rank of the fake sent nothing, so that the average is half of the own values.
    assert torch.equal(model.weight.grad.to_dense(), expected / 2)
    assert sent_names(fake_pair.core) == ["allgather.weight.indices", "allgather.weight.values"]


def test_sparse_gradients_can_travel_dense(fake_pair: Any) -> None:
    model = nn.Embedding(5, 2, sparse=True)
    optimizer = wrap(fake_pair.hvd, model, sparse_as_dense=True)
    embedding_loss(model).backward()
    expected = model.weight.grad.to_dense()
    optimizer.synchronize()
    assert model.weight.grad.is_sparse
    assert torch.equal(model.weight.grad.to_dense(), expected)
    assert sent_names(fake_pair.core) == ["allreduce.weight"]


def test_a_sparse_parameter_unused_in_a_step_submits_no_rows(fake_pair: Any) -> None:
    model = nn.Embedding(5, 2, sparse=True)
    optimizer = wrap(fake_pair.hvd, model)
    embedding_loss(model).backward()
    optimizer.step()
    optimizer.zero_grad()
    fake_pair.core.calls.clear()
    optimizer.step()
    assert sent_names(fake_pair.core) == ["allgather.weight.indices", "allgather.weight.values"]
    assert [call.shape for call in sent(fake_pair.core)] == [(0, 1), (0, 2)]


def test_groups_refuse_sparse_gradients(fake_pair: Any) -> None:
    model = nn.ModuleDict({"a": nn.Embedding(3, 2, sparse=True), "b": nn.Embedding(3, 2)})
    optimizer = wrap(fake_pair.hvd, model, groups=[list(model.parameters())])
    with pytest.raises(ValueError, match=r"gradient of a\.weight is sparse"):
        (model["a"](torch.tensor([1])) + model["b"](torch.tensor([1]))).sum().backward()
    del optimizer


@pytest.mark.filterwarnings("ignore:Using backward.* with create_graph")
def test_a_gradient_that_needs_a_gradient_is_refused(fake_pair: Any) -> None:
    model = net()
    optimizer = wrap(fake_pair.hvd, model)
    with pytest.raises(AssertionError, match="requires a gradient itself"):
        model(torch.ones(1, 3)).square().sum().backward(create_graph=True)
    del optimizer


def test_a_model_may_change_its_type_after_wrapping(fake_pair: Any) -> None:
    model = net()
    optimizer = wrap(fake_pair.hvd, model)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        model.to(dtype)
        optimizer.zero_grad()
        fake_pair.core.calls.clear()
        model(torch.ones(5, 3, dtype=dtype)).square().sum().backward()
        codes = {call.dtype for call in sent(fake_pair.core)}
        optimizer.step()
        assert codes == {code_of(dtype)}


@pytest.mark.parametrize("as_dense", [False, True])
def test_ranks_tell_each_other_in_each_step_what_they_have(fake_pair: Any, as_dense: bool) -> None:
    model = nn.ModuleDict({"words": nn.Embedding(5, 2, sparse=True), "head": nn.Linear(2, 1)})
    optimizer = wrap(fake_pair.hvd, model, sparse_as_dense=as_dense)
    for _ in range(3):
        model["head"](model["words"](torch.tensor([1]))).sum().backward()
        optimizer.step()
    told = [call for call in fake_pair.core.calls if call.name.endswith(".presence")]
    assert [(call.name, call.shape) for call in told] == [("allreduce.head.bias.presence", (5, 3))] * 3


def test_a_parameter_that_nobody_has_used_yet_waits_for_the_step(fake_pair: Any) -> None:
    """Other ranks do not expect its first gradient, and do not know its form."""
    model = nn.ModuleDict({"words": nn.Embedding(5, 2, sparse=True), "head": nn.Linear(2, 1)})
    optimizer = wrap(fake_pair.hvd, model)
    sent_so_far = []
    for step in range(4):
        rows = torch.ones(1, 2) if step < 2 else model["words"](torch.tensor([1]))
        optimizer.zero_grad()
        fake_pair.core.calls.clear()
        model["head"](rows).sum().backward()
        in_backward = len(sent(fake_pair.core))
        optimizer.step()
        sent_so_far.append((in_backward, len(sent(fake_pair.core))))
        assert (model["words"].weight.grad is None) == (step < 2)
    assert sent_so_far == [(2, 2), (2, 2), (2, 4), (4, 4)]
