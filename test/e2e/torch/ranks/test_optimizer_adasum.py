"""DistributedOptimizer with op=Adasum combines the ranks' steps."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import horovod.torch as hvd
from training import assert_all_ranks_hold, batch, loss, net, wrap

MAKERS: dict[str, Any] = {
    "SGD": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-2),
    "Adam": lambda m: torch.optim.Adam(m.parameters(), lr=0.01),
    "RMSprop": lambda m: torch.optim.RMSprop(m.parameters(), lr=0.01),
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_step_adds_the_adasum_of_all_ranks_steps(name: str) -> None:
    model = net()
    optimizer = wrap(model, MAKERS[name](model), op=hvd.Adasum)
    own = copy.deepcopy(model)  # goes this rank's way alone; in between it is put where all are
    own_optimizer = MAKERS[name](own)
    for step in range(3):
        start = [p.detach().clone() for p in model.parameters()]
        own_optimizer.zero_grad()
        loss(own, batch(hvd.rank(), step)).backward()
        own_optimizer.step()
        optimizer.zero_grad()
        loss(model, batch(hvd.rank(), step)).backward()
        optimizer.step()
        for parameter, alone, before in zip(model.parameters(), own.parameters(), start, strict=True):
            moved = hvd.allreduce(alone.detach() - before, op=hvd.Adasum)
            torch.testing.assert_close(parameter.detach(), before + moved)
            alone.data.copy_(parameter.detach())
    assert_all_ranks_hold(model)


def test_parameters_stay_until_the_step() -> None:
    model = net()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), op=hvd.Adasum)
    before = copy.deepcopy(model.state_dict())
    loss(model, batch(hvd.rank(), 0)).backward()
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    if hvd.size() > 1:
        with pytest.raises(AssertionError, match="race condition"):
            optimizer.zero_grad()
        optimizer.synchronize()
        with pytest.raises(AssertionError, match="skip_synchronize"), optimizer.skip_synchronize():
            pass
    optimizer.step()
    optimizer.zero_grad()
    assert any(not torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert_all_ranks_hold(model)


def test_parameters_of_another_memory_format() -> None:
    torch.manual_seed(0)
    model = nn.Conv2d(3, 4, 2).double().to(memory_format=torch.channels_last)
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), op=hvd.Adasum)
    before = model.weight.detach().clone()
    torch.manual_seed(1 + hvd.rank())
    model(torch.randn(2, 3, 4, 4, dtype=torch.float64)).square().mean().backward()
    moved = hvd.allreduce((-0.1 * model.weight.grad).contiguous(), op=hvd.Adasum)
    optimizer.step()
    torch.testing.assert_close(model.weight.detach(), before + moved)


def test_several_passes_and_parameters_that_a_rank_does_not_use() -> None:
    model = nn.ModuleList(nn.Linear(4, 3) for _ in range(3)).double()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), op=hvd.Adasum, backward_passes_per_step=2)
    unused = model[2].weight.detach().clone()
    for step in range(3):
        optimizer.zero_grad()
        for part in range(2):
            model[hvd.rank() % 2](batch(hvd.rank(), 2 * step + part)).square().mean().backward()
        optimizer.step()
    assert torch.equal(model[2].weight, unused)
    assert_all_ranks_hold(model)


@pytest.mark.usefixtures("several_ranks")
def test_more_passes_than_announced_are_an_error() -> None:
    model = net()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), op=hvd.Adasum)
    loss(model, batch(0, 0)).backward()
    with pytest.raises(AssertionError, match="backward_passes_per_step"):
        loss(model, batch(0, 0)).backward()
    optimizer.step()
    optimizer.set_backward_passes_per_step(2)
    with pytest.raises(ValueError, match="got 0"):
        optimizer.set_backward_passes_per_step(0)


def test_it_is_an_optimizer_like_any_other() -> None:
    model, more = net(), nn.Linear(3, 2).double()
    hvd.broadcast_parameters(more.state_dict(), root_rank=0)
    optimizer = wrap(model, torch.optim.Adam(model.parameters(), lr=0.01), op=hvd.Adasum)
    assert isinstance(optimizer, torch.optim.Adam)
    assert type(optimizer).__name__ == "Adam"
    assert type(optimizer).__module__ == hvd.DistributedOptimizer.__module__
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    optimizer.add_param_group({"params": more.parameters(), "lr": 0.005})
    scheduler.base_lrs.append(0.005)
    for step in range(2):
        optimizer.zero_grad()
        more(model(batch(hvd.rank(), step))).square().mean().backward()
        optimizer.step()
        scheduler.step()
    saved = copy.deepcopy(optimizer.state_dict())
    twin_model, twin_more, twin = copy.deepcopy((model, more, optimizer))
    twin.load_state_dict(saved)
    for using, trained, head in ((optimizer, model, more), (twin, twin_model, twin_more)):
        using.zero_grad()
        head(trained(batch(hvd.rank(), 7))).square().mean().backward()
        using.step()
    for one, other in zip(model.parameters(), twin_model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert_all_ranks_hold(more)


def test_compressed_steps() -> None:
    model = net(torch.float32)
    optimizer = wrap(
        model, torch.optim.SGD(model.parameters(), lr=0.1), op=hvd.Adasum, compression=hvd.Compression.fp16
    )
    for step in range(2):
        optimizer.zero_grad()
        loss(model, batch(hvd.rank(), step, torch.float32)).backward()
        optimizer.step()
    assert all(p.dtype == torch.float32 for p in model.parameters())
    assert_all_ranks_hold(model)
