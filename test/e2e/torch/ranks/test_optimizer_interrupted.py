"""Steps that do not come to their end: interrupted ones, forgotten ones, those of a session that is over."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import horovod.torch as hvd
from horovod._common.handles import HandleTable
from horovod._common.native import core
from training import assert_all_ranks_hold, batch, net, wrap


class Layers(nn.Module):
    """Matrices, and a sparse one, that ranks use or not."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(8)
        self.ways = nn.ModuleList(nn.Linear(4, 3, bias=False) for _ in range(3)).double()
        self.words = nn.Embedding(4, 3, sparse=True).double()

    def loss(self, ways: list[int], words: bool = False) -> torch.Tensor:
        data = torch.full((2, 4), hvd.rank() + 1.0, dtype=torch.float64)
        outputs = [self.ways[way](data).sum() for way in ways]
        return torch.stack([*outputs, self.words(torch.tensor([1])).sum()] if words else outputs).sum()


OPS = pytest.mark.parametrize("op", [hvd.Average, hvd.Adasum], ids=["Average", "Adasum"])


@OPS
@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("call", ["load", "count"])
def test_ranks_that_began_only_parts_of_groups_forget_them_together(op: int, passes: int, call: str) -> None:
    """The last pass of rank 0 submitted something, that of the others nothing."""
    model = Layers()
    options: dict[str, Any] = {"groups": [list(model.ways[:2].parameters())]} if op == hvd.Average else {"op": op}
    optimizer = wrap(
        model, torch.optim.SGD(model.ways.parameters(), lr=0.1), backward_passes_per_step=passes, **options
    )
    saved = copy.deepcopy(optimizer.state_dict())
    for _ in range(2):
        for part in range(passes):
            model.loss([2] if hvd.rank() == 0 else [part]).backward()
        if call == "load":
            optimizer.load_state_dict(saved)
        else:
            optimizer.set_backward_passes_per_step(passes)
        optimizer.zero_grad()
        for _ in range(passes):
            model.loss([0, 1, 2]).backward()
        optimizer.step()
        optimizer.zero_grad()
        assert_all_ranks_hold(model)


@OPS
def test_what_a_session_left_behind_is_no_part_of_the_next(op: int) -> None:
    model = Layers()
    optimizer = wrap(model, torch.optim.SGD(model.ways.parameters(), lr=0.1), op=op)
    saved = copy.deepcopy(optimizer.state_dict())
    if hvd.rank() == 0:
        model.loss([0, 1]).backward()
    hvd.barrier()
    hvd.shutdown()
    hvd.init()
    optimizer.load_state_dict(saved)
    optimizer.zero_grad()
    model.loss([0, 1, 2]).backward()
    optimizer.step()
    assert_all_ranks_hold(model)


def interrupting(function: Callable[..., Any], at: int, calls: list[int]) -> Callable[..., Any]:
    """Ctrl-C instead of the wait number `at`; it is counted in `calls`."""

    def wait(*arguments: Any) -> Any:
        calls.append(len(calls))
        if calls[-1] == at:
            raise KeyboardInterrupt
        return function(*arguments)

    return wait


def take_step(optimizer: Any) -> None:
    optimizer.step()


def forget(optimizer: Any) -> None:
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))


@OPS
@pytest.mark.usefixtures("several_ranks")
@pytest.mark.parametrize("then", [take_step, forget])
@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("at", range(5))
def test_an_interrupted_step_goes_on_when_it_is_called_again(
    at: int, number: int, then: Callable[[Any], None], op: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 is interrupted at each place where a step waits; the others wait for it meanwhile."""
    from horovod.torch import _exchange

    model, twin = Layers(), Layers()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), op=op)
    names = [(f"twin.{name}", parameter) for name, parameter in twin.named_parameters()]
    other = hvd.DistributedOptimizer(torch.optim.SGD(twin.parameters(), lr=0.1), names, op=op)
    uses = [([0], True), ([0, 1] if hvd.rank() == 0 else [0], True), ([0], hvd.rank() == 0)]
    for step, (ways, words) in enumerate(uses):
        for using, own in ((optimizer, model), (other, twin)):
            using.zero_grad()
            own.loss(ways, words).backward()
        if step == number and hvd.rank() == 0:
            with monkeypatch.context() as patch:
                calls: list[int] = []
                for owner, name in ((core, "wait_all"), (HandleTable, "synchronize"), (_exchange.Presence, "wait")):
                    patch.setattr(owner, name, interrupting(getattr(owner, name), at, calls))
                try:
                    optimizer.step()
                except KeyboardInterrupt:
                    then(optimizer)
        else:
            optimizer.step()
        if then is forget:
            hvd.broadcast_parameters(model.state_dict(), root_rank=1)
        other.step()
    for one, expected in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(one, expected)
    assert_all_ranks_hold(model)


@pytest.mark.usefixtures("several_ranks")
def test_a_parameter_may_be_added_after_an_interrupted_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step is given up on the rank that was interrupted; the others have it."""
    from horovod.torch import _exchange

    model = Layers()
    optimizer = wrap(model, torch.optim.SGD(model.ways[:2].parameters(), lr=0.1))
    model.loss([0, 1]).backward()
    if hvd.rank() == 0:
        with monkeypatch.context() as patch:
            patch.setattr(_exchange.Presence, "wait", interrupting(_exchange.Presence.wait, 0, []))
            with pytest.raises(KeyboardInterrupt):
                optimizer.step()
    else:
        optimizer.step()
    optimizer.add_param_group({"params": model.ways[2].parameters()})
    hvd.broadcast_parameters(model.state_dict(), root_rank=1)
    optimizer.zero_grad()
    model.loss([0, 1, 2]).backward()
    optimizer.step()
    assert_all_ranks_hold(model)


@pytest.mark.usefixtures("several_ranks")
@pytest.mark.parametrize("op", [hvd.Average, hvd.Adasum], ids=["Average", "Adasum"])
def test_a_layer_used_in_two_reentrant_checkpoints_is_told_from_two_passes(op: int) -> None:
    model = net()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), op=op)

    def output(reentrant: bool) -> torch.Tensor:
        hidden = model[1](model[0](batch(hvd.rank(), 0)))
        return sum(checkpoint(model[2], hidden, use_reentrant=reentrant).square().mean() for _ in range(2))

    with pytest.raises(AssertionError, match=r"pass use_reentrant=False to checkpoint\(\)"):
        output(reentrant=True).backward()
    optimizer.step()
    optimizer.zero_grad()
    output(reentrant=False).backward()
    with pytest.raises(AssertionError, match="Increase backward_passes_per_step"):
        output(reentrant=False).backward()
    optimizer.step()
