"""Which gradients a rank expects of the others, when it could not see all that they did."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import horovod.torch as hvd
from training import assert_all_ranks_hold, batch, wrap


class Parts(nn.Module):
    """A layer that all use in every step, and others that are used by whom the test says."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(9)
        self.always = nn.Linear(4, 3).double()
        self.words = nn.Embedding(6, 3, sparse=True).double()
        self.branch = nn.Linear(4, 3, bias=False).double()
        self.late = nn.Linear(4, 3, bias=False).double()

    def forward(self, data: torch.Tensor, used: tuple[str, ...]) -> torch.Tensor:
        output = self.always(data)
        for name in used:
            output = output + getattr(self, name)(torch.arange(len(data)) if name == "words" else data)
        return output


EVERYTHING = ("words", "branch", "late")


def take_step(model: Parts, optimizer: torch.optim.Optimizer, number: int, used: tuple[str, ...] = ()) -> None:
    optimizer.zero_grad()
    model(batch(hvd.rank(), number), used).square().mean().backward()
    optimizer.step()


@pytest.mark.parametrize("as_dense", [False, True])
@pytest.mark.parametrize("added", ["unfrozen", "new group"])
def test_known_gradients_stay_known_when_parameters_are_added(added: str, as_dense: bool) -> None:
    """Afterwards one rank alone has a gradient of those that all had before."""
    model = Parts()
    first = [parameter for name, parameter in model.named_parameters() if added == "unfrozen" or name != "late.weight"]
    model.late.requires_grad_(added != "unfrozen")
    optimizer = wrap(model, torch.optim.SGD(first, lr=0.1), sparse_as_dense=as_dense)
    take_step(model, optimizer, 0, EVERYTHING)
    if added == "unfrozen":
        model.late.requires_grad_(True)
    else:
        optimizer.add_param_group({"params": model.late.parameters()})
    for number, name in enumerate(EVERYTHING, 1):
        take_step(model, optimizer, number, EVERYTHING)
        before = [parameter.detach().clone() for parameter in getattr(model, name).parameters()]
        take_step(model, optimizer, number, (name,) if hvd.rank() == 0 else ())
        moved = zip(getattr(model, name).parameters(), before, strict=True)
        assert all(not torch.equal(parameter, old) for parameter, old in moved)
        assert_all_ranks_hold(model)


@pytest.mark.parametrize(
    ("name", "options"),
    [("words", {"sparse_as_dense": True}), ("branch", {}), ("branch", {"groups": 2})],
    ids=["sparse as dense", "dense", "groups"],
)
@pytest.mark.parametrize("first_epoch", [0, 2])
def test_a_parameter_first_used_beside_ranks_that_joined(name: str, options: dict[str, Any], first_epoch: int) -> None:
    """Rank 0 has one batch more than the others and uses it there; then nobody does, another rank does, all do."""
    model = Parts()
    before = getattr(model, name).weight.detach().clone()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), **options)
    for number in range(first_epoch):
        take_step(model, optimizer, number)
    if hvd.rank() == 0:
        take_step(model, optimizer, first_epoch, (name,))
    last = hvd.join_and_broadcast(model, optimizer)
    assert 0 <= last < hvd.size()
    users = ((), (hvd.size() - 1,), range(hvd.size()), ())
    for number, using in enumerate(users, 5):
        take_step(model, optimizer, number, (name,) if hvd.rank() in using else ())
        assert (getattr(model, name).weight.grad is None) == (len(using) == 0)
        assert_all_ranks_hold(model)
    assert not torch.equal(getattr(model, name).weight, before)
