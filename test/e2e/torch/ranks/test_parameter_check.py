"""Ranks that do not hold the same parameters are told so, and one call makes them equal after uneven epochs."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

import horovod.torch as hvd
from training import assert_all_ranks_hold, batch, loss, net, wrap


def step(model: nn.Module, optimizer: torch.optim.Optimizer, number: int = 0) -> list[str]:
    """A training step; what it warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer.zero_grad()
        loss(model, batch(hvd.rank(), number)).backward()
        optimizer.step()
    return [str(warning.message) for warning in caught]


@pytest.mark.usefixtures("several_ranks")
@pytest.mark.parametrize("op", [hvd.Average, hvd.Adasum], ids=["Average", "Adasum"])
@pytest.mark.parametrize("frozen", [False, True])
def test_the_first_parameter_that_differs_is_named_once_on_the_first_rank(op: int, frozen: bool) -> None:
    model = net()
    with torch.no_grad():
        model[2].bias[1] += hvd.rank()
        model[2].weight[0, 0] += hvd.rank()
    model[2].bias.requires_grad_(not frozen)
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), op=op)
    warned = step(model, optimizer)
    assert len(warned) == (1 if hvd.rank() == 0 else 0)
    for text in warned:
        assert text.startswith("parameter 2.bias differs between ranks before step 1 of its optimizer")
        assert "hvd.broadcast_parameters was forgotten?" in text
    assert not step(model, optimizer)


def test_equal_parameters_are_not_warned_of_whatever_their_strides() -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten()).to(torch.bfloat16)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    if hvd.rank() == 1:
        model = model.to(memory_format=torch.channels_last)
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(torch.ones(1, 2, 5, 5, dtype=torch.bfloat16)).sum().backward()
        optimizer.step()


@pytest.mark.usefixtures("several_ranks")
@pytest.mark.parametrize(
    ("every", "op", "expected"), [("0", hvd.Average, []), ("2", hvd.Average, [3, 5]), ("2", hvd.Adasum, [])]
)
def test_a_variable_says_how_often(
    every: str, op: int, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With Adasum once at most: before the first step."""
    monkeypatch.setenv("HOROVOD_CHECK_PARAMETERS", every)
    model = net()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), op=op)
    warned = []
    for number in range(1, 6):
        if number == 2:
            model[0].weight.data[0, 0] += hvd.rank()
        if step(model, optimizer, number):
            warned.append(number)
    assert warned == (expected if hvd.rank() == 0 else [])


def test_a_variable_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_CHECK_PARAMETERS", "often")
    model = net()
    if hvd.size() > 1:
        with pytest.raises(ValueError, match="HOROVOD_CHECK_PARAMETERS='often': expected a whole number"):
            wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))


def test_one_call_makes_ranks_equal_after_uneven_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks count their steps apart then, and joined ranks hold other parameters by right: neither is warned of."""
    monkeypatch.setenv("HOROVOD_CHECK_PARAMETERS", "2")
    model = net()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    for _ in range(2):
        warned = [text for number in range(3 * hvd.rank()) for text in step(model, optimizer, number)]
        assert warned == []
        assert hvd.join_and_broadcast(model, optimizer) == hvd.size() - 1
        assert_all_ranks_hold(model)
    if hvd.size() > 1:
        momentum = [optimizer.state[p]["momentum_buffer"] for p in model.parameters()]
        for tensor in momentum:
            assert all(torch.equal(other, tensor) for other in hvd.allgather(tensor.unsqueeze(0)))


@pytest.mark.parametrize("op", [hvd.Average, hvd.Adasum], ids=["Average", "Adasum"])
def test_ranks_whose_first_epoch_is_empty_compare_nothing_alone(op: int) -> None:
    model = net()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), op=op)
    for epoch in range(2):
        for number in range(2 if epoch > 0 else hvd.rank() == 0):
            assert step(model, optimizer, number) == []
        hvd.join_and_broadcast(model, optimizer)
        assert_all_ranks_hold(model)
