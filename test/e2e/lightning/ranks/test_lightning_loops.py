"""Loops of the user's own in which ranks do not all compute the same, and optimizers that get more to do."""

from __future__ import annotations

from typing import Any

import torch
from lightning_world import DOUBLE, assert_equal_everywhere, horovod, own_batches, pl
from torch import nn

import horovod.torch as hvd


class Loop(pl.LightningModule):
    """Two layers, the second of which the optimizer does not know, and a number that it never gets."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.first, self.later = nn.Linear(3, 1), nn.Linear(3, 1)
        self.beside = nn.Parameter(torch.ones(()))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.first.parameters(), lr=0.1)


def test_parameters_that_are_added_by_self_optimizers_are_reduced() -> None:
    class Adding(Loop):
        def training_step(self, batch: Any, index: int) -> None:
            optimizer = self.optimizers()
            if index == 1:
                optimizer.add_param_group({"params": list(self.later.parameters())})
            optimizer.zero_grad()
            self.manual_backward((self.first(batch[0]) + self.later(batch[0]) - batch[1]).pow(2).mean())
            optimizer.synchronize()
            with optimizer.skip_synchronize():
                optimizer.step()

    model = Adding()
    before = model.later.weight.detach().clone()
    horovod(max_epochs=1, **DOUBLE).fit(model, own_batches())
    assert not torch.equal(model.later.weight, before)
    assert_equal_everywhere(model.parameters())


def test_a_second_pass_that_reaches_nothing_on_one_rank() -> None:
    class Twice(Loop):
        def training_step(self, batch: Any, index: int) -> None:
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(self.first(batch[0]).pow(2).mean())
            reaches = hvd.rank() == 0 or index % 2 == 1
            self.manual_backward(self.first(batch[0]).sin().mean() if reaches else self.beside * 0.0)
            optimizer.step()

    model = Twice()
    horovod(max_epochs=1, **DOUBLE).fit(model, own_batches())
    assert_equal_everywhere(model.first.parameters())
