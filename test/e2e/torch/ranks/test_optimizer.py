"""DistributedOptimizer trains all ranks alike, and as one rank with the whole batch would."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

import horovod.torch as hvd
from training import assert_all_ranks_hold, assert_close, batch, halves, loss, net, wrap


@contextmanager
def same_training_on_one_rank(make: Callable[[nn.Module], torch.optim.Optimizer]) -> Iterator[Any]:
    """A twin that sees the batches of all ranks and needs no Horovod."""
    twin = net()
    yield twin, make(twin)


OPTIMIZERS: dict[str, Callable[[nn.Module], torch.optim.Optimizer]] = {
    "SGD": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3),
    "Adam": lambda m: torch.optim.Adam(m.parameters(), lr=0.01, amsgrad=True),
    "AdamW": lambda m: torch.optim.AdamW(m.parameters(), lr=0.01),
    "Adamax": lambda m: torch.optim.Adamax(m.parameters(), lr=0.01),
    "NAdam": lambda m: torch.optim.NAdam(m.parameters(), lr=0.01),
    "RAdam": lambda m: torch.optim.RAdam(m.parameters(), lr=0.01),
    "Adadelta": lambda m: torch.optim.Adadelta(m.parameters(), lr=0.5),
    "Adagrad": lambda m: torch.optim.Adagrad(m.parameters(), lr=0.05),
    "RMSprop": lambda m: torch.optim.RMSprop(m.parameters(), lr=0.01),
    "Rprop": lambda m: torch.optim.Rprop(m.parameters(), lr=0.01),
    "ASGD": lambda m: torch.optim.ASGD(m.parameters(), lr=0.01),
    "Adafactor": lambda m: torch.optim.Adafactor(m.parameters(), lr=0.01),
    "Muon": lambda m: torch.optim.Muon([p for p in m.parameters() if p.ndim == 2], lr=0.01),
}


def train_both(steps: int, model: Any, optimizer: Any, twin: Any, twin_optimizer: Any) -> None:
    """The model on this rank's batches, its twin on those of all ranks."""
    for step in range(steps):
        optimizer.zero_grad()
        loss(model, batch(hvd.rank(), step)).backward()
        optimizer.step()
        twin_optimizer.zero_grad()
        loss(twin, torch.cat([batch(rank, step) for rank in range(hvd.size())])).backward()
        twin_optimizer.step()


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if hasattr(torch.optim, name)])
def test_training_equals_that_of_one_rank_with_the_whole_batch(name: str) -> None:
    with same_training_on_one_rank(OPTIMIZERS[name]) as (twin, twin_optimizer):
        model = net()
        train_both(4, model, wrap(model, OPTIMIZERS[name](model)), twin, twin_optimizer)
        assert_close(model, twin, rtol=1e-6, atol=1e-8)
    if name != "Muon":  # it leaves the biases to another optimizer
        assert_all_ranks_hold(model)


VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "predivide": {"gradient_predivide_factor": 2.0},
    "groups of 2": {"groups": 2},
    "one group": {"groups": 1},
    "groups and predivide": {"groups": 2, "gradient_predivide_factor": 4.0},
    "unnamed": {"named_parameters": None},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_give_the_same_result(variant: str) -> None:
    make = OPTIMIZERS["SGD"]
    with same_training_on_one_rank(make) as (twin, twin_optimizer):
        model = net()
        options = {"named_parameters": model.named_parameters(), **VARIANTS[variant]}
        optimizer = hvd.DistributedOptimizer(make(model), **options)
        train_both(3, model, optimizer, twin, twin_optimizer)
        assert_close(model, twin, rtol=1e-9, atol=1e-12)
    assert_all_ranks_hold(model)


def test_listed_groups_give_the_same_result_as_none() -> None:
    models = [net(), net()]
    groups = [[models[1][0].weight, models[1][2].bias]]
    optimizers = [
        wrap(models[0], torch.optim.SGD(models[0].parameters(), lr=0.1)),
        hvd.DistributedOptimizer(torch.optim.SGD(models[1].parameters(), lr=0.1), groups=groups),
    ]
    for model, optimizer in zip(models, optimizers, strict=True):
        for step in range(3):
            optimizer.zero_grad()
            loss(model, batch(hvd.rank(), step)).backward()
            optimizer.step()
    for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("groups", [None, 3])
def test_ranks_may_hold_their_parameters_in_another_order(groups: int | None) -> None:
    model = nn.ModuleList([net(), nn.Linear(2, 2).double()])  # of which the second is not used
    parameters = list(model.parameters())[:: (-1) ** hvd.rank()]
    optimizer = wrap(model, torch.optim.SGD(parameters, lr=0.1), groups=groups)
    for step in range(2):
        optimizer.zero_grad()
        loss(model[0], batch(hvd.rank(), step)).backward()
        optimizer.step()
    assert_all_ranks_hold(model)
    assert model[1].weight.grad is None


@pytest.mark.parametrize("passes", [2, 3])
def test_accumulated_gradients_are_summed_over_the_passes(passes: int) -> None:
    make = OPTIMIZERS["SGD"]
    with same_training_on_one_rank(make) as (twin, twin_optimizer):
        model = net()
        optimizer = wrap(model, make(model), backward_passes_per_step=passes)
        for step in range(2):
            optimizer.zero_grad()
            twin_optimizer.zero_grad()
            for part in range(passes):
                loss(model, batch(hvd.rank(), 10 * step + part)).backward()
                whole = torch.cat([batch(rank, 10 * step + part) for rank in range(hvd.size())])
                loss(twin, whole).backward()
            optimizer.step()
            twin_optimizer.step()
        assert_close(model, twin, rtol=1e-9, atol=1e-12)
    assert_all_ranks_hold(model)


@pytest.mark.parametrize("op", ["Sum", "Min", "Max"])
def test_other_reductions(op: str) -> None:
    model = net()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), op=getattr(hvd, op))
    grads = []
    for rank in range(hvd.size()):
        twin = net()
        loss(twin, batch(rank, 0)).backward()
        grads.append(twin[0].weight.grad)
    loss(model, batch(hvd.rank(), 0)).backward()
    optimizer.synchronize()
    stacked = torch.stack(grads)
    expected = {"Sum": stacked.sum(0), "Min": stacked.amin(0), "Max": stacked.amax(0)}[op]
    torch.testing.assert_close(model[0].weight.grad, expected)
    with optimizer.skip_synchronize():
        optimizer.step()


@pytest.mark.parametrize(("compression", "tolerance"), [("fp16", 2e-3), ("bf16", 2e-2)])
def test_compressed_gradients(compression: str, tolerance: float) -> None:
    models = [net(torch.float32), net(torch.float32)]
    choices = [hvd.Compression.none, getattr(hvd.Compression, compression)]
    for model, choice in zip(models, choices, strict=True):
        optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), compression=choice)
        loss(model, batch(hvd.rank(), 0, torch.float32)).backward()
        optimizer.step()
    assert_close(models[1], models[0], rtol=tolerance, atol=tolerance)
    assert_all_ranks_hold(models[1])


@pytest.mark.parametrize("dtype", [*halves(), torch.float32])
def test_models_of_other_types(dtype: torch.dtype) -> None:
    model = net(dtype)
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step in range(2):
        optimizer.zero_grad()
        loss(model, batch(hvd.rank(), step, dtype)).backward()
        optimizer.step()
    assert_all_ranks_hold(model)


# Ranks that differ


class Branches(nn.Module):
    """Each rank may go another way through it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.ways = nn.ModuleList(nn.Linear(4, 3) for _ in range(3))

    def forward(self, data: torch.Tensor, way: int) -> torch.Tensor:
        return self.ways[way](data)


@pytest.mark.parametrize("groups", [None, 1])
def test_ranks_may_use_different_parameters(groups: int | None) -> None:
    model = Branches()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), groups=groups)
    for step in range(4):
        optimizer.zero_grad()
        model(batch(0, step).float(), (hvd.rank() + step) % 3).sum().backward()
        optimizer.step()
    assert_all_ranks_hold(model)


def test_parameters_that_another_rank_used_get_its_gradient() -> None:
    model = Branches()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), op=hvd.Sum)
    way = 0 if hvd.rank() == 0 else 1
    model(torch.ones(2, 4), way).sum().backward()
    optimizer.synchronize()
    assert torch.equal(model.ways[0].bias.grad, torch.full((3,), 2.0))
    if hvd.size() > 1:
        assert torch.equal(model.ways[1].bias.grad, torch.full((3,), 2.0 * (hvd.size() - 1)))
        assert model.ways[2].bias.grad is None
    with optimizer.skip_synchronize():
        optimizer.step()


def test_requires_grad_may_change_over_time() -> None:
    model = net()
    model[0].bias.requires_grad_(False)
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step in range(6):
        model[2].weight.requires_grad_(step % 2 == 0)
        if step == 3:
            model[0].bias.requires_grad_(True)
        optimizer.zero_grad()
        loss(model, batch(hvd.rank(), step)).backward()
        optimizer.step()
    assert_all_ranks_hold(model)


def test_two_optimizers_take_turns() -> None:
    """The pattern of adversarial training: each step leaves gradients in the other's parameters."""
    generator, critic = net(), nn.Linear(3, 1).double()
    hvd.broadcast_parameters(critic.state_dict(), root_rank=0)
    optimizers = [
        hvd.DistributedOptimizer(
            torch.optim.SGD(m.parameters(), lr=0.1), named_parameters=[(f"{n}.{k}", p) for k, p in m.named_parameters()]
        )
        for n, m in (("generator", generator), ("critic", critic))
    ]
    for step in range(3):
        made = generator(batch(hvd.rank(), step))
        critic(made.detach()).square().mean().backward()
        optimizers[1].step()
        optimizers[1].zero_grad()
        for parameter in critic.parameters():
            parameter.requires_grad_(False)
        critic(generator(batch(hvd.rank(), step))).mean().backward()
        optimizers[0].step()
        optimizers[0].zero_grad()
        for parameter in critic.parameters():
            parameter.requires_grad_(True)
    assert_all_ranks_hold(generator)
    assert_all_ranks_hold(critic)


def test_tied_weights() -> None:
    torch.manual_seed(1)
    model = nn.ModuleDict({"a": nn.Linear(4, 4, bias=False), "b": nn.Linear(4, 4, bias=False)})
    model["b"].weight = model["a"].weight
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    data = batch(hvd.rank(), 0).float()
    model["b"](model["a"](data)).square().mean().backward()
    optimizer.step()
    assert_all_ranks_hold(model)


def test_several_parameter_groups() -> None:
    model = net()
    groups = [{"params": model[0].parameters(), "lr": 0.5}, {"params": model[2].parameters()}]
    optimizer = wrap(model, torch.optim.SGD(groups, lr=0.1))
    loss(model, batch(hvd.rank(), 0)).backward()
    optimizer.step()
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 0.1]
    assert_all_ranks_hold(model)


@pytest.mark.usefixtures("several_ranks")
def test_ranks_that_disagree_get_an_error_and_go_on() -> None:
    parameter = nn.Parameter(torch.ones(2 + hvd.rank()))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=0.1), named_parameters=[("p", parameter)])
    parameter.sum().backward()
    with pytest.raises(hvd.HorovodInternalError, match=r"allreduce\.p"):
        optimizer.step()
    optimizer.zero_grad()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()


def test_many_small_parameters() -> None:
    parameters = [nn.Parameter(torch.full((3,), float(i))) for i in range(1000)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0), op=hvd.Sum)
    for _ in range(3):
        optimizer.zero_grad()
        torch.stack(list(parameters)).sum().backward()
        optimizer.step()
    for i, parameter in enumerate(parameters):
        assert torch.equal(parameter.detach(), torch.full((3,), float(i - 3 * hvd.size())))
