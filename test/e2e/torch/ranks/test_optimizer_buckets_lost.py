"""gradient_as_bucket_view where sessions end, ranks join, steps fail or are interrupted."""

from __future__ import annotations

import copy
import os
import warnings
from typing import Any

import pytest
import torch

import horovod.torch as hvd
from buckets import VIEWS, are_views, gradients_of, pair, take_steps
from horovod.torch import _buckets
from training import assert_all_ranks_hold, assert_close, backward_both, batch, loss, net, wrap


def test_another_session_gets_other_buckets() -> None:
    model, optimizer, twin, twin_optimizer = pair()
    for step in range(5):
        if step == 3:
            old = [parameter.grad for parameter in model.parameters()]
            hvd.shutdown()
            hvd.init()
            for parameter, grad in zip(model.parameters(), old, strict=True):
                assert hvd.size() == 1 or parameter.grad is not grad
                assert torch.equal(parameter.grad, grad)
        backward_both(model, optimizer, twin, twin_optimizer, step)
        optimizer.step()
        twin_optimizer.step()
    assert_close(model, twin)
    assert hvd.size() == 1 or all(are_views(optimizer))


@pytest.mark.usefixtures("several_ranks")
def test_ranks_that_have_joined_and_come_back() -> None:
    """While one takes part with zeros, buckets of the others are not agreed on, and old ones still work."""
    model = net()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), **VIEWS)
    for epoch in range(2):
        for step in range(1 if epoch == 0 and hvd.rank() == 0 else 3):
            optimizer.zero_grad()
            loss(model, batch(hvd.rank(), step)).backward()
            optimizer.step()
        hvd.join_and_broadcast(model)
    assert all(are_views(optimizer))
    assert_all_ranks_hold(model)


@pytest.mark.usefixtures("several_ranks")
def test_buckets_that_are_outdated_while_a_rank_has_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are made anew when it is back, and not asked about before."""
    compared: list[str] = []
    compare = _buckets._compare

    def counted(text: str, *others: Any) -> Any:
        compared.append(text)
        return compare(text, *others)

    monkeypatch.setattr(_buckets, "_compare", counted)
    model = net(torch.float32)
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), **VIEWS)

    def train(steps: int, dtype: torch.dtype) -> None:
        for step in range(steps):
            optimizer.zero_grad()
            loss(model, batch(hvd.rank(), step, dtype)).backward()
            optimizer.step()

    train(2, torch.float32)
    model.double()
    if hvd.rank() > 0:
        train(3, torch.float64)
        assert len(compared) == 1
        assert all(gradient.bucket is not None for gradient in gradients_of(optimizer))
    hvd.join_and_broadcast(model)
    train(3, torch.float64)
    assert len(compared) == 2
    assert all(are_views(optimizer))
    assert_all_ranks_hold(model)


@pytest.mark.usefixtures("several_ranks")
def test_a_gradient_that_does_not_fit_fails_the_step_on_all_ranks() -> None:
    """Also if the script catches the error of backward() and goes on."""
    model = net()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), **VIEWS)
    take_steps(model, optimizer, 2)
    before = copy.deepcopy(model.state_dict())
    optimizer.zero_grad()
    if hvd.rank() == 0:
        bias = model[0].bias
        bias.data, old = bias.data.repeat(2), bias.data
        bias.grad = None
        with pytest.raises(ValueError, match="and now has"):
            (bias.sum() * 1.0).backward()
        bias.data = old
        with pytest.raises(ValueError, match="and now has"):
            optimizer.step()
        bias.grad = None
    else:
        loss(model, batch(hvd.rank(), 2)).backward()
        with pytest.raises(hvd.HorovodInternalError, match="shape"):
            optimizer.step()
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    take_steps(model, optimizer, 1, first=3)
    assert all(are_views(optimizer))
    assert_all_ranks_hold(model)


@pytest.mark.usefixtures("several_ranks")
def test_an_interrupt_while_buckets_are_agreed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next call waits for the comparison that is running."""
    model = net()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), **VIEWS)
    compare = _buckets._compare

    class Interrupted:
        def __init__(self, handle: Any) -> None:
            self.handle, self.waits = handle, 0

        def wait(self) -> Any:
            self.waits += 1
            if self.waits == 1:
                raise KeyboardInterrupt
            return self.handle.wait()

    if hvd.rank() == 0:
        monkeypatch.setattr(_buckets, "_compare", lambda *arguments: Interrupted(compare(*arguments)))
    loss(model, batch(hvd.rank(), 0)).backward()
    if hvd.rank() == 0:
        with pytest.raises(KeyboardInterrupt):
            optimizer.step()
    optimizer.step()
    take_steps(model, optimizer, 1, first=1)
    assert all(are_views(optimizer))
    assert_all_ranks_hold(model)


@pytest.mark.usefixtures("several_ranks")
def test_a_forked_child_has_no_gradients_in_buckets() -> None:
    """It does not have their memory: what init() does there must not read it."""
    model = net()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), **VIEWS)
    take_steps(model, optimizer, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of forks with threads
        child = os.fork()
    if child == 0:
        try:
            optimizer._reducer.on_session_start()
            os._exit(0 if all(parameter.grad is None for parameter in model.parameters()) else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert all(are_views(optimizer))
