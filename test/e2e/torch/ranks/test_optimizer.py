"""DistributedOptimizer trains all ranks alike, and as one rank with the whole batch would."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import horovod.torch as hvd
from horovod.torch.compression import Compressor
from training import assert_all_ranks_hold, assert_close, batch, halves, loss, net, train_both, twin_backward, wrap


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)


VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "predivide": {"gradient_predivide_factor": 2.0},
    "groups of 2": {"groups": 2},
    "one group": {"groups": 1},
    "groups and predivide": {"groups": 2, "gradient_predivide_factor": 4.0},
    "unnamed": {"named_parameters": None},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_train_like_one_rank_with_the_whole_batch(variant: str) -> None:
    model, twin = net(), net()
    options = {"named_parameters": model.named_parameters(), **VARIANTS[variant]}
    train_both(model, hvd.DistributedOptimizer(sgd(model), **options), twin, sgd(twin))
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
    model, twin = net(), net()
    optimizer, twin_optimizer = wrap(model, sgd(model), backward_passes_per_step=passes), sgd(twin)
    for step in range(2):
        optimizer.zero_grad()
        twin_optimizer.zero_grad()
        for part in range(passes):
            loss(model, batch(hvd.rank(), 10 * step + part)).backward()
            twin_backward(twin, 10 * step + part)
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


class Doubled(Compressor):
    """A user's own: sends everything in double precision."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return tensor.double(), tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor.to(ctx)


@pytest.mark.parametrize(
    ("compression", "tolerance"),
    [(hvd.Compression.fp16, 2e-3), (hvd.Compression.bf16, 2e-2), (Doubled, 1e-6)],
    ids=["fp16", "bf16", "own"],
)
def test_compressed_gradients(compression: Any, tolerance: float) -> None:
    models = [net(torch.float32), net(torch.float32)]
    for model, choice in zip(models, [hvd.Compression.none, compression], strict=True):
        optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), compression=choice)
        loss(model, batch(hvd.rank(), 0, torch.float32)).backward()
        optimizer.step()
    assert models[1][0].weight.dtype is torch.float32
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


def three_ways() -> nn.ModuleList:
    """Layers of which each rank may use another one."""
    torch.manual_seed(2)
    return nn.ModuleList(nn.Linear(4, 3) for _ in range(3))


@pytest.mark.parametrize("groups", [None, 1])
def test_ranks_may_use_different_parameters_or_none(groups: int | None) -> None:
    ways = three_ways()
    optimizer = wrap(ways, torch.optim.Adam(ways.parameters(), lr=0.1), groups=groups)
    for step in range(5):
        optimizer.zero_grad()
        way = (hvd.rank() + step) % 4
        if way < len(ways):
            ways[way](batch(0, step).float()).sum().backward()
        optimizer.step()
    assert_all_ranks_hold(ways)


def test_parameters_that_another_rank_used_get_its_gradient() -> None:
    ways = three_ways()
    optimizer = wrap(ways, torch.optim.SGD(ways.parameters(), lr=0.1), op=hvd.Sum)
    ways[0 if hvd.rank() == 0 else 1](torch.ones(2, 4)).sum().backward()
    optimizer.synchronize()
    assert torch.equal(ways[0].bias.grad, torch.full((3,), 2.0))
    if hvd.size() > 1:
        assert torch.equal(ways[1].bias.grad, torch.full((3,), 2.0 * (hvd.size() - 1)))
        assert ways[2].bias.grad is None
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
        critic(made).mean().backward()
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
