"""Gradients that are changed between backward and step: refused while they travel, right when backward finishes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import horovod.torch as hvd
from training import assert_all_ranks_hold, assert_close, backward_both, batch, loss, net, twin_backward, wrap


def clip(model: nn.Module) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 0.01)


def replace(model: nn.Module) -> None:
    model[0].weight.grad = model[0].weight.grad * 0.5


def clear(model: nn.Module) -> None:
    model.zero_grad()


RECIPE = r"synchronize\(\).*skip_synchronize\(\).*synchronize_in_backward"


@pytest.mark.usefixtures("several_ranks")
@pytest.mark.parametrize(
    "options", [{}, {"groups": 1}, {"compression": hvd.Compression.fp16}], ids=["", "groups", "fp16"]
)
@pytest.mark.parametrize("change", [clip, replace, clear])
def test_changing_gradients_that_travel_is_an_error_on_every_rank(
    change: Callable[[nn.Module], None], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = net()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), **options)
    for refusing in (optimizer.zero_grad, optimizer.step):
        loss(model, batch(hvd.rank(), 0)).backward()
        change(model)
        with pytest.raises(RuntimeError, match=RECIPE):
            refusing()
        optimizer.zero_grad()
    loss(model, batch(hvd.rank(), 0)).backward()
    optimizer.step()  # goes on after the errors
    optimizer.zero_grad()
    monkeypatch.setenv("HOROVOD_ALLOW_CHANGED_GRADIENTS", "1")
    loss(model, batch(hvd.rank(), 0)).backward()
    change(model)
    with pytest.warns(UserWarning, match=RECIPE):
        optimizer.step()


@pytest.mark.usefixtures("several_ranks", "cpu_scaler")
@pytest.mark.parametrize("unscale", [False, True])
def test_a_scaler_without_synchronize_is_refused_on_every_rank(unscale: bool) -> None:
    """It would look at gradients that are still local; here one rank overflows."""
    model = net(torch.float32)
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    value = loss(model, batch(hvd.rank(), 0, torch.float32))
    scaler.scale(value * float("inf") if hvd.rank() == 0 else value).backward()
    if unscale:
        scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match=RECIPE):
        scaler.step(optimizer)
    optimizer.zero_grad()
    loss(model, batch(hvd.rank(), 0, torch.float32)).backward()
    optimizer.step()


def test_finishing_in_backward_makes_clipping_right() -> None:
    model, twin = net(), net()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9), synchronize_in_backward=True)
    twin_optimizer = torch.optim.SGD(twin.parameters(), lr=0.5, momentum=0.9)
    for step in range(4):
        backward_both(model, optimizer, twin, twin_optimizer, step)
        if step == 2:  # the old recipe does no harm
            optimizer.synchronize()
        clip(model)
        clip(twin)
        if step == 3:
            with optimizer.skip_synchronize():
                optimizer.step()
        else:
            optimizer.step()
        twin_optimizer.step()
    assert_close(model, twin, rtol=1e-9, atol=1e-12)
    assert_all_ranks_hold(model)


def test_finishing_in_backward_waits_for_the_last_pass() -> None:
    model, twin = net(), net()
    options = {"backward_passes_per_step": 2, "synchronize_in_backward": True}
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), **options)
    twin_optimizer = torch.optim.SGD(twin.parameters(), lr=0.1)
    for step in range(2):
        optimizer.zero_grad()
        twin_optimizer.zero_grad()
        for part in range(2):
            loss(model, batch(hvd.rank(), 10 * step + part)).backward()
            twin_backward(twin, 10 * step + part)
        torch.testing.assert_close(model[0].weight.grad, twin[0].weight.grad)
        optimizer.step()
        twin_optimizer.step()
    assert_close(model, twin, rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("cpu_scaler")
def test_finishing_in_backward_with_a_gradient_scaler_of_the_usual_kind() -> None:
    """As PyTorch's documentation has it; a step that overflows on one rank is skipped on all."""
    model = net(torch.float32)
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), synchronize_in_backward=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for step in range(4):
        before = model[0].weight.detach().clone()
        optimizer.zero_grad()
        value = loss(model, batch(hvd.rank(), step, torch.float32))
        overflows = step == 1
        scaler.scale(value * float("inf") if overflows and hvd.rank() == 0 else value).backward()
        scaler.unscale_(optimizer)
        clip(model)
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(before, model[0].weight) == overflows
        assert scaler.get_scale() == (4.0 if step > 0 else 8.0)
    assert_all_ranks_hold(model)


def test_a_backward_within_backward_does_not_finish() -> None:
    """A reentrant checkpoint runs one; its part of the parameters is not all."""
    model, twin = net(), net()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), synchronize_in_backward=True)
    data = batch(hvd.rank(), 0)
    for step in range(2):
        optimizer.zero_grad()
        hidden = model[1](model[0](data))
        output = checkpoint(model[2], hidden, use_reentrant=True)
        (output - data[:, :3]).square().mean().backward()
        assert not optimizer._reducer or optimizer._reducer.is_reduced
        clip(model)
        optimizer.step()
        twin_backward(twin, 0)
        if step == 0:
            norm = torch.cat([p.grad.flatten() for p in twin.parameters()]).norm()
            expected = twin[0].weight.grad / norm * 0.01
            torch.testing.assert_close(model[0].weight.grad, expected, rtol=1e-3, atol=1e-6)
    assert_all_ranks_hold(model)


@pytest.mark.usefixtures("several_ranks")
def test_an_error_of_the_reduction_comes_out_of_backward() -> None:
    parameter = nn.Parameter(torch.ones(2 + hvd.rank()))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([parameter], lr=0.1), named_parameters=[("p", parameter)], synchronize_in_backward=True
    )
    with pytest.raises(hvd.HorovodInternalError, match=r"allreduce\.p"):
        parameter.sum().backward()
    optimizer.zero_grad()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()


def give_up(model: nn.Module, optimizer: Any) -> None:
    model.zero_grad()  # without a step, as after an overflow


def take_step(model: nn.Module, optimizer: Any) -> None:
    optimizer.step()


def clear_in_place(model: nn.Module, optimizer: Any) -> None:
    optimizer.zero_grad(set_to_none=False)


@pytest.mark.usefixtures("several_ranks")
@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("then", [give_up, take_step, clear_in_place])
def test_a_pass_too_many_after_backward_has_finished_is_an_error(
    then: Callable[[nn.Module, Any], None], passes: int
) -> None:
    """It would add this rank's own gradients to reduced ones, and reduce the sum again."""
    model = net()
    options = {"op": hvd.Sum, "backward_passes_per_step": passes, "synchronize_in_backward": True}
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.01), **options)
    for step in range(3):
        for part in range(passes):
            loss(model, batch(hvd.rank(), part)).backward()
        if step == 1:
            clip(model)
        if step == 2:
            with pytest.raises(AssertionError, match="backward_passes_per_step"):
                loss(model, batch(hvd.rank(), 0)).backward()
            optimizer.zero_grad()
        else:
            then(model, optimizer)
    loss(model, batch(hvd.rank(), 0)).backward()


@pytest.mark.usefixtures("several_ranks", "cpu_scaler")
@pytest.mark.parametrize("unscale", [False, True])
def test_a_scaler_that_is_only_warned_of_uses_gradients_that_are_reduced_once(
    unscale: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one rank alone skips, as it has looked at gradients of its own, the others do not wait for it."""
    monkeypatch.setenv("HOROVOD_ALLOW_CHANGED_GRADIENTS", "1")
    model, twin = net(torch.float32), net(torch.float32)
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), op=hvd.Sum)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    value = loss(model, batch(hvd.rank(), 0, torch.float32))
    overflows = unscale and hvd.rank() == 0
    scaler.scale(value * float("inf") if overflows else value).backward()
    if unscale:
        scaler.unscale_(optimizer)
    with pytest.warns(UserWarning, match=RECIPE):
        scaler.step(optimizer)
    scaler.update()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()
    if overflows:
        assert_close(model, twin, rtol=0.0, atol=0.0)
    if not unscale:
        sum(loss(twin, batch(rank, 0, torch.float32)) for rank in range(hvd.size())).backward()
        torch.optim.SGD(twin.parameters(), lr=0.1).step()
        assert_close(model, twin)
    model.load_state_dict(net(torch.float32).state_dict())
    optimizer.zero_grad()
    loss(model, batch(hvd.rank(), 0, torch.float32)).backward()
    clear(model)
    with pytest.warns(UserWarning, match=RECIPE):
        optimizer.zero_grad()
    assert all(parameter.grad is None for parameter in model.parameters())
    loss(model, batch(hvd.rank(), 0, torch.float32)).backward()
    optimizer.step()
    assert_all_ranks_hold(model)
