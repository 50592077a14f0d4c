"""gradient_as_bucket_view: gradients are views of buckets, whatever scripts do to them between steps."""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest
import torch
from torch import nn

import horovod.torch as hvd
from buckets import VIEWS, are_views, gradients_of, pair, take_steps
from horovod.torch import _buckets
from training import assert_all_ranks_hold, assert_close, batch, loss, net, train_with_scaler, twin_backward, wrap


@pytest.mark.usefixtures("several_ranks")
@pytest.mark.parametrize("to_none", [True, False])
def test_gradients_are_views_of_shared_memory_from_the_second_step(to_none: bool) -> None:
    model, optimizer, twin, twin_optimizer = pair()
    for step in range(4):
        optimizer.zero_grad(set_to_none=to_none)
        twin_optimizer.zero_grad()
        loss(model, batch(hvd.rank(), step)).backward()
        twin_backward(twin, step)
        optimizer.synchronize()
        assert are_views(optimizer) == [step > 0] * 4
        for own, other in zip(model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(own.grad, other.grad)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(twin.parameters(), 0.1))
        with optimizer.skip_synchronize():
            optimizer.step()
        twin_optimizer.step()
    assert_close(model, twin)
    assert_all_ranks_hold(model)
    assert len({id(g.bucket) for g in gradients_of(optimizer)}) == 1


def test_passes_and_scripts_that_keep_their_gradients() -> None:
    model, optimizer, twin, twin_optimizer = pair(backward_passes_per_step=2)
    for step in range(4):
        for half in (0, 10):
            loss(model, batch(hvd.rank(), step + half)).backward()
            twin_backward(twin, step + half)
        optimizer.step()
        twin_optimizer.step()
        if step == 1:  # what is left is added to
            for own, other in zip(model.parameters(), twin.parameters(), strict=True):
                own.grad.mul_(0.5)
                other.grad.mul_(0.5)
        if step == 2:  # other memory under the old object, and another object
            model[0].weight.grad.data = model[0].weight.grad.data.clone()
            model[0].bias.grad = model[0].bias.grad.clone()
        if step % 2 == 0:
            optimizer.zero_grad()
            twin_optimizer.zero_grad()
    assert_close(model, twin)
    assert_all_ranks_hold(model)


@pytest.mark.usefixtures("cpu_scaler")
def test_a_gradient_scaler_and_a_copies_of_gradients() -> None:
    model, optimizer, _, _ = pair(torch.float32)
    train_with_scaler(model, optimizer, set_to_none=False)
    assert_all_ranks_hold(model)
    grad = model[0].weight.grad
    other = copy.deepcopy(grad)
    assert torch.equal(pickle.loads(pickle.dumps(grad)), other)
    other.zero_()
    assert grad.count_nonzero() > 0


@pytest.mark.usefixtures("several_ranks")
def test_types_layouts_and_parameters_that_come_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each type has buckets, large parameters one of their own; layouts are kept; what is new gets a bucket too."""
    monkeypatch.setattr(_buckets, "_LARGEST", 300)
    model = nn.ModuleDict({
        "wide": nn.Linear(16, 16, bias=False).double(),
        "conv": nn.Conv2d(2, 3, 2).to(memory_format=torch.channels_last),
        "later": nn.Linear(3, 2, bias=False),
    })  # fmt: skip
    twin = copy.deepcopy(model)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    twin.load_state_dict(model.state_dict())

    def loss_of(used: nn.ModuleDict, rank: int, step: int) -> torch.Tensor:
        data = batch(rank, step)
        image = data[:2].reshape(1, 2, 2, 2).float()
        sum_ = used["wide"](data.reshape(-1)[:16]).square().sum() + used["conv"](image).square().sum().double()
        return sum_ + used["later"](data[:, :3].float()).square().sum().double() if step > 2 else sum_

    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.001), **VIEWS)
    twin_optimizer = torch.optim.SGD(twin.parameters(), lr=0.001)
    for step in range(6):
        optimizer.zero_grad()
        twin_optimizer.zero_grad()
        loss_of(model, hvd.rank(), step).backward()
        (sum(loss_of(twin, rank, step) for rank in range(hvd.size())) / hvd.size()).backward()
        optimizer.step()
        twin_optimizer.step()
        assert_close(model, twin, rtol=1e-4, atol=1e-5)
        assert (model["later"].weight.grad is None) == (step < 3)
    assert are_views(optimizer) == [True] * 4
    by_name = {g.name: g for g in gradients_of(optimizer)}
    assert model["conv"].weight.grad.is_contiguous(memory_format=torch.channels_last)
    buckets = [id(by_name[name].bucket) for name in ("wide.weight", "conv.weight", "conv.bias", "later.weight")]
    assert buckets[1] == buckets[2]
    assert len(set(buckets)) == 3


@pytest.mark.usefixtures("several_ranks")
def test_what_cannot_be_in_a_bucket_goes_as_always_and_is_said_once() -> None:
    model = nn.ModuleDict({"rows": nn.Embedding(5, 4, sparse=True), "dense": nn.Linear(4, 3)})
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), **VIEWS)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            optimizer.zero_grad()
            model["dense"](model["rows"](torch.tensor([hvd.rank(), 4]))).square().sum().backward()
            optimizer.step()
    said = [str(warning.message) for warning in caught if "bucket" in str(warning.message)]
    assert said == [
        "gradient_as_bucket_view: 1 of 3 gradients are sparse, of an unusual type or not on the CPU: they stay "
        "outside of the buckets"
    ]
    assert are_views(optimizer) == [False, True, True]
    assert_all_ranks_hold(model)
    model.double()  # parameters and gradients change under the buckets, which are made anew
    for _ in range(3):
        optimizer.zero_grad()
        model["dense"](model["rows"](torch.tensor([hvd.rank(), 4]))).square().sum().backward()
        optimizer.step()
        assert model["dense"].weight.grad.dtype is torch.float64
    assert are_views(optimizer) == [False, True, True]
    assert_all_ranks_hold(model)


@pytest.mark.usefixtures("several_ranks")
def test_ranks_whose_parameters_have_another_order_go_without() -> None:
    model = net()
    parameters = list(model.named_parameters())
    if hvd.rank() == 1:
        parameters.reverse()
    optimizer = torch.optim.SGD([parameter for _, parameter in parameters], lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=parameters, **VIEWS)
    for step in range(3):
        optimizer.zero_grad()
        loss(model, batch(hvd.rank(), step)).backward()
        if step == 0:
            with pytest.warns(UserWarning, match="parameters differ between ranks, or their order does"):
                optimizer.step()
        else:
            optimizer.step()
    assert are_views(optimizer) == [False] * 4
    assert_all_ranks_hold(model)


@pytest.mark.usefixtures("several_ranks")
def test_a_compiled_model() -> None:
    model, optimizer, twin, twin_optimizer = pair()
    compiled = torch.compile(model, backend="aot_eager")
    for step in range(3):
        optimizer.zero_grad()
        twin_optimizer.zero_grad()
        loss(compiled, batch(hvd.rank(), step)).backward()
        twin_backward(twin, step)
        optimizer.step()
        twin_optimizer.step()
        assert are_views(optimizer) == [step > 0] * 4
    assert_close(model, twin)


def test_options_that_exclude_buckets_say_so() -> None:
    for options, what in (({"compression": hvd.Compression.fp16}, "compression"), ({"groups": 2}, "groups")):
        model = net()
        with pytest.warns(UserWarning, match=f"gradient_as_bucket_view has no effect with {what}"):
            optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), **VIEWS, **options)
        take_steps(model, optimizer, 2)
        assert_all_ranks_hold(model)
