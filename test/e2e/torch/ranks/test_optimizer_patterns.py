"""DistributedOptimizer in the ways scripts use it: clipping, scaling, closures, checkpoints."""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import horovod.torch as hvd
from training import assert_all_ranks_hold, assert_close, backward_both, batch, loss, net, train_with_scaler, wrap


def test_clipping() -> None:
    """Between synchronize() and step(), which warns of nothing."""
    model, twin = net(), net()
    optimizer, twin_optimizer = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, twin))
    optimizer = wrap(model, optimizer)
    for step in range(2):
        backward_both(model, optimizer, twin, twin_optimizer, step)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            optimizer.synchronize()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.01)
            with optimizer.skip_synchronize():
                optimizer.step()
        torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(twin.parameters(), 0.01))
        twin_optimizer.step()
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


@pytest.mark.usefixtures("cpu_scaler")
def test_a_gradient_scaler() -> None:
    model = net(torch.float32)
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    train_with_scaler(model, optimizer)
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


def train_on(batches: Iterable[torch.Tensor], model: nn.Module, optimizer: Any) -> None:
    for data in batches:
        optimizer.zero_grad()
        loss(model, data).backward()
        optimizer.step()


def test_a_checkpoint_in_a_file_resumes_on_all_ranks(tmp_path: Path) -> None:
    model, twin = net(), nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    optimizer = wrap(model, torch.optim.Adam(model.parameters(), lr=0.01))
    other = wrap(twin, torch.optim.Adam(twin.parameters(), lr=0.5 + hvd.rank()))
    train_on([batch(hvd.rank(), step) for step in range(2)], model, optimizer)
    if hvd.rank() == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "checkpoint.pt")
        saved = torch.load(tmp_path / "checkpoint.pt")
        twin.load_state_dict(saved["model"])
        other.load_state_dict(saved["optimizer"])
    hvd.broadcast_parameters(twin.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(other, root_rank=0)
    for trained, using in ((model, optimizer), (twin, other)):
        train_on([batch(hvd.rank(), 2)], trained, using)
    assert_close(model, twin, rtol=0.0, atol=0.0)
    assert_all_ranks_hold(twin)


def test_the_workers_of_a_data_loader_last_for_several_epochs() -> None:
    """They are forked from a process with a session, once."""
    model = net()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    whole = TensorDataset(batch(0, 0))
    sampler = DistributedSampler(whole, hvd.size(), hvd.rank())
    loader = DataLoader(whole, batch_size=2, sampler=sampler, num_workers=1, persistent_workers=True)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        train_on((data for (data,) in loader), model, optimizer)
    assert_all_ranks_hold(model)


CLOSURES: dict[str, Callable[[nn.Module], torch.optim.Optimizer]] = {
    "SGD": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9),
    "LBFGS": lambda m: torch.optim.LBFGS(m.parameters(), lr=0.5, max_iter=6),
    "strong_wolfe": lambda m: torch.optim.LBFGS(m.parameters(), lr=0.5, max_iter=6, line_search_fn="strong_wolfe"),
}


@pytest.mark.parametrize("kind", CLOSURES)
def test_a_closure_takes_the_same_steps_as_on_one_rank(kind: str) -> None:
    """That of LBFGS runs several times a step; how often depends on the loss, which all ranks have to share."""
    model, twin = net(), net()
    optimizer, twin_optimizer = wrap(model, CLOSURES[kind](model)), CLOSURES[kind](twin)

    def closure(using: Any, own: nn.Module, data: torch.Tensor) -> torch.Tensor:
        using.zero_grad()
        value = loss(own, data)
        value.backward()
        return value

    for step in range(3):
        number = step if kind == "SGD" else 0
        whole = torch.cat([batch(rank, number) for rank in range(hvd.size())])
        value = optimizer.step(functools.partial(closure, optimizer, model, batch(hvd.rank(), number)))
        expected = twin_optimizer.step(functools.partial(closure, twin_optimizer, twin, whole))
        assert (value.shape, value.dtype) == (expected.shape, expected.dtype)
        if kind != "SGD":
            torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-7)
    assert_close(model, twin, **({"rtol": 1e-9, "atol": 1e-12} if kind == "SGD" else {"rtol": 1e-5, "atol": 1e-7}))
    assert_all_ranks_hold(model)


@pytest.mark.parametrize("form", [torch.Tensor.item, lambda value: value.reshape(1).float()], ids=["float", "float32"])
def test_lbfgs_returns_a_loss_like_that_of_its_closure(form: Callable[[torch.Tensor], Any]) -> None:
    model = net()
    optimizer = wrap(model, torch.optim.LBFGS(model.parameters(), max_iter=2))

    def closure() -> Any:
        optimizer.zero_grad()
        value = loss(model, batch(hvd.rank(), 0))
        value.backward()
        return form(value.detach())

    own = form(loss(model, batch(hvd.rank(), 0)).detach())
    value = optimizer.step(closure)
    assert type(value) is type(own)
    assert getattr(value, "shape", ()) == getattr(own, "shape", ())
    assert getattr(value, "dtype", float) == getattr(own, "dtype", float)


def test_schedulers_change_the_rate_of_the_wrapper() -> None:
    model, twin = net(), net()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    twin_optimizer = torch.optim.SGD(twin.parameters(), lr=0.1)
    makers = [
        lambda o: torch.optim.lr_scheduler.OneCycleLR(o, max_lr=0.2, total_steps=10),
        lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=4),
        lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 1 / (1 + step)),
    ]
    for make in makers:
        schedulers = make(optimizer), make(twin_optimizer)
        for step in range(3):
            backward_both(model, optimizer, twin, twin_optimizer, step)
            optimizer.step()
            twin_optimizer.step()
            for scheduler in schedulers:
                scheduler.step()
            assert optimizer.param_groups[0]["lr"] == twin_optimizer.param_groups[0]["lr"]
    assert_close(model, twin, rtol=1e-9, atol=1e-12)


def test_parameters_may_be_added_after_wrapping() -> None:
    model, more = net(), nn.Linear(3, 2).double()
    hvd.broadcast_parameters(more.state_dict(), root_rank=0)
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    optimizer.add_param_group({"params": more.parameters(), "lr": 0.01})
    for step in range(3):
        optimizer.zero_grad()
        more(model(batch(hvd.rank(), step))).square().mean().backward()
        optimizer.step()
    assert_all_ranks_hold(model)
    assert_all_ranks_hold(more)


def test_a_copy_trains_like_its_original() -> None:
    model = net()
    optimizer = wrap(model, torch.optim.Adam(model.parameters(), lr=0.01))
    loss(model, batch(hvd.rank(), 0)).backward()
    optimizer.step()
    twin, twin_optimizer = copy.deepcopy((model, optimizer))
    assert set(twin_optimizer._parameter_names.values()) == set(optimizer._parameter_names.values())
    for trained, using in ((model, optimizer), (twin, twin_optimizer)):
        using.zero_grad()
        loss(trained, batch(hvd.rank(), 1)).backward()
        using.step()
    assert_close(model, twin, rtol=0.0, atol=0.0)
    assert_all_ranks_hold(twin)


@pytest.mark.usefixtures("cpu_scaler")
def test_a_scaler_skips_the_same_steps_everywhere() -> None:
    """An overflow on one rank is one on all ranks, after the reduction."""
    model = net(torch.float32)
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    before = [p.detach().clone() for p in model.parameters()]
    value = loss(model, batch(hvd.rank(), 0, torch.float32))
    if hvd.rank() == 0:
        value = value * float("inf")
    scaler.scale(value).backward()
    optimizer.synchronize()
    scaler.unscale_(optimizer)
    with optimizer.skip_synchronize():
        scaler.step(optimizer)
    scaler.update()
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
    assert scaler.get_scale() == 4.0


def test_autocast_training() -> None:
    model = net(torch.float32)
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), compression=hvd.Compression.bf16)
    for step in range(3):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = loss(model, batch(hvd.rank(), step, torch.float32))
        value.float().backward()
        optimizer.step()
    assert_all_ranks_hold(model)
