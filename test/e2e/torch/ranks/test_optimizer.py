"""DistributedOptimizer trains all ranks alike, and as one rank with the whole batch would (contract 02 §2.6, C.3)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

import horovod.torch as hvd


def net(dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(11)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).to(dtype)


def batch(rank: int, step: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(6, 4, generator=generator).to(dtype)


def loss(model: nn.Module, data: torch.Tensor) -> torch.Tensor:
    return (model(data) - data[:, :3]).square().mean()


def wrap(model: nn.Module, optimizer: torch.optim.Optimizer, **options: Any) -> Any:
    return hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), **options)


def assert_close(one: nn.Module, other: nn.Module, **tolerance: float) -> None:
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, **tolerance)


def assert_all_ranks_hold(model: nn.Module) -> None:
    """Bitwise the same parameters everywhere."""
    for parameter in model.parameters():
        everybodys = hvd.allgather(parameter.detach().unsqueeze(0))
        assert all(torch.equal(other, parameter) for other in everybodys)


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


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_equals_that_of_one_rank_with_the_whole_batch(name: str) -> None:
    with same_training_on_one_rank(OPTIMIZERS[name]) as (twin, twin_optimizer):
        model = net()
        optimizer = wrap(model, OPTIMIZERS[name](model))
        for step in range(4):
            optimizer.zero_grad()
            loss(model, batch(hvd.rank(), step)).backward()
            optimizer.step()
            twin_optimizer.zero_grad()
            loss(twin, torch.cat([batch(rank, step) for rank in range(hvd.size())])).backward()
            twin_optimizer.step()
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
        for step in range(3):
            optimizer.zero_grad()
            loss(model, batch(hvd.rank(), step)).backward()
            optimizer.step()
            twin_optimizer.zero_grad()
            loss(twin, torch.cat([batch(rank, step) for rank in range(hvd.size())])).backward()
            twin_optimizer.step()
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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
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
        assert torch.equal(model.ways[2].bias.grad, torch.zeros(3))
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


# Patterns of use


def test_clipping() -> None:
    model, twin = net(), net()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    loss(model, batch(hvd.rank(), 0)).backward()
    optimizer.synchronize()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    with optimizer.skip_synchronize():
        optimizer.step()
    loss(twin, torch.cat([batch(rank, 0) for rank in range(hvd.size())])).backward()
    torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(twin.parameters(), 0.01))
    torch.optim.SGD(twin.parameters(), lr=0.1).step()
    assert_close(model, twin)
    assert_all_ranks_hold(model)


def test_synchronising_twice_warns_once_and_keeps_an_average() -> None:
    model = net()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    loss(model, batch(hvd.rank(), 0)).backward()
    optimizer.synchronize()
    once = model[0].weight.grad.clone()
    with pytest.warns(UserWarning, match="skip_synchronize") as caught:
        optimizer.step()
    assert len(caught) == 1
    torch.testing.assert_close(model[0].weight.grad, once)


def test_a_gradient_scaler() -> None:
    model = net(torch.float32)
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for step in range(3):
        optimizer.zero_grad()
        scaler.scale(loss(model, batch(hvd.rank(), step, torch.float32))).backward()
        optimizer.synchronize()
        scaler.unscale_(optimizer)
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()
    assert_all_ranks_hold(model)


def test_state_can_be_saved_and_loaded() -> None:
    model = net()
    optimizer = wrap(model, torch.optim.Adam(model.parameters(), lr=0.01))
    loss(model, batch(hvd.rank(), 0)).backward()
    optimizer.step()
    saved = copy.deepcopy(optimizer.state_dict())
    twin = copy.deepcopy(model)
    other = wrap(twin, torch.optim.Adam(twin.parameters(), lr=0.5))
    other.load_state_dict(saved)
    for trained, using in ((model, optimizer), (twin, other)):
        using.zero_grad()
        loss(trained, batch(hvd.rank(), 1)).backward()
        using.step()
    assert_close(model, twin, rtol=0.0, atol=0.0)


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
            model(rows).square().sum().backward()
            optimizer.step()
    torch.testing.assert_close(sparse.weight, dense.weight, rtol=1e-6, atol=1e-9)
    assert_all_ranks_hold(sparse)


def test_sparse_adam() -> None:
    torch.manual_seed(5)
    model = nn.Embedding(7, 3, sparse=True)
    optimizer = wrap(model, torch.optim.SparseAdam(model.parameters(), lr=0.1))
    for step in range(3):
        optimizer.zero_grad()
        model(torch.tensor([hvd.rank(), step])).square().sum().backward()
        optimizer.step()
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
