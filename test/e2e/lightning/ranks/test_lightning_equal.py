"""Training on all ranks ends with the parameters that one process has, with batches as large as all ranks' together."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from lightning_world import (
    HorovodStrategy,
    Regression,
    all_batches,
    assert_equal_everywhere,
    horovod,
    own_batches,
    pl,
    plain,
)

import horovod.torch as hvd

EPOCHS = 3


def same_start(model: Any) -> Any:
    """A copy for the trainer of one process, with the parameters that rank 0 has."""
    reference = copy.deepcopy(model)
    hvd.broadcast_parameters(reference.state_dict(), root_rank=0)
    return reference


def assert_equals_one_process(model: Any, strategy: Any = None, **options: Any) -> None:
    """Each rank trains alone for comparison, and then with the others, which have begun with other parameters."""
    reference = same_start(model)
    options = {"max_epochs": EPOCHS, "precision": "64-true", **options}
    plain(**copy.deepcopy(options)).fit(reference, all_batches())
    before = [parameter.detach().clone() for parameter in reference.parameters()]
    trainer = horovod(strategy=strategy or HorovodStrategy(), **options)
    trainer.fit(model, own_batches())
    for expected, parameter in zip(before, model.parameters(), strict=True):
        torch.testing.assert_close(parameter.detach(), expected, rtol=1e-9, atol=1e-11)
    assert_equal_everywhere(model.parameters())
    assert_equal_everywhere(model.buffers())


def test_sgd_with_clipping_and_a_schedule() -> None:
    """Clipping acts in every step: a rank's own gradients have another norm than the average."""
    model = Regression("sgd")
    assert_equals_one_process(model, gradient_clip_val=0.05)
    free = Regression("sgd")
    free.load_state_dict(model.state_dict())
    assert_equals_one_process(free, gradient_clip_val=0.05, gradient_clip_algorithm="value")


@pytest.mark.parametrize("passes", [2, 3])
def test_adam_with_accumulation(passes: int) -> None:
    """Of the five batches of an epoch the last step has fewer than the others."""
    assert_equals_one_process(Regression("adam"), accumulate_grad_batches=passes, gradient_clip_val=0.5)


def test_layers_that_not_all_passes_use() -> None:
    assert_equals_one_process(Regression("sgd", used_in=range(1, 2)), accumulate_grad_batches=2)
    assert_equals_one_process(Regression("sgd", used_in=range(2, 4)))


def test_accumulation_that_changes() -> None:
    schedule = pl.callbacks.GradientAccumulationScheduler({0: 1, 1: 3})
    assert_equals_one_process(Regression("adam"), callbacks=[schedule])


def test_lbfgs() -> None:
    assert_equals_one_process(Regression("lbfgs"), max_epochs=1)


def test_options_of_the_optimizer() -> None:
    strategy = HorovodStrategy(gradient_predivide_factor=2.0, groups=2)
    assert_equals_one_process(Regression("adam"), strategy=strategy, accumulate_grad_batches=2)


def test_a_model_that_is_trained_again() -> None:
    """The first optimizer's hooks are gone: its gradients would have the names of the second's."""
    model = Regression("sgd")
    horovod(max_epochs=1, precision="64-true").fit(model, own_batches())
    assert_equals_one_process(model)


class Manual(Regression):
    """Two optimizers in a loop of the user's own; `how` says how the loop goes."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.automatic_optimization = False

    def configure_optimizers(self) -> Any:
        one = torch.optim.SGD([*self.first.parameters(), *self.second.parameters()], lr=0.05, momentum=0.9)
        other = torch.optim.Adam(self.third.parameters(), lr=0.02)
        return [one, other], [torch.optim.lr_scheduler.ExponentialLR(one, 0.9)]

    def losses(self, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """The first one reaches the parameters of both optimizers, as a generator's does the discriminator's."""
        hidden = self.first(batch[0]).tanh()
        return (self.loss_of(batch) + self.third(hidden).pow(2).mean()), self.third(hidden.detach()).sin().mean()

    def training_step(self, batch: Any, index: int) -> None:
        getattr(self, self.how)(batch, index, *self.optimizers())

    def alternating(self, batch: Any, index: int, one: Any, other: Any) -> None:
        one.zero_grad()
        self.manual_backward(self.losses(batch)[0])
        self.clip_gradients(one, gradient_clip_val=0.1, gradient_clip_algorithm="norm")
        one.step()
        other.zero_grad()
        self.manual_backward(self.losses(batch)[1])
        torch.nn.utils.clip_grad_norm_(self.third.parameters(), 0.05)
        other.step()
        if self.trainer.is_last_batch:
            self.lr_schedulers().step()

    def toggled(self, batch: Any, index: int, one: Any, other: Any) -> None:
        for optimizer, number in ((one, 0), (other, 1)):
            self.toggle_optimizer(optimizer)
            optimizer.zero_grad()
            self.manual_backward(self.losses(batch)[number])
            optimizer.step()
            self.untoggle_optimizer(optimizer)

    def accumulating(self, batch: Any, index: int, one: Any, other: Any) -> None:
        self.manual_backward(sum(self.losses(batch)) / 2)
        if index % 2 == 1 or self.trainer.is_last_batch:
            for optimizer in (one, other):
                optimizer.step()
                optimizer.zero_grad()

    def accumulating_locally(self, batch: Any, index: int, one: Any, other: Any) -> None:
        stepping = index % 2 == 1 or self.trainer.is_last_batch
        with one.toggle_model(sync_grad=stepping):
            self.manual_backward(self.losses(batch)[0] / 2)
            if stepping:
                one.step()
                one.zero_grad()

    def by_closure(self, batch: Any, index: int, one: Any, other: Any) -> None:
        for optimizer, number in ((one, 0), (other, 1)):

            def closure(optimizer: Any = optimizer, number: int = number) -> torch.Tensor:
                optimizer.zero_grad()
                loss = self.losses(batch)[number]
                self.manual_backward(loss)
                return loss

            optimizer.step(closure=closure)

    def without_lightning(self, batch: Any, index: int, one: Any, other: Any) -> None:
        """Plain torch, on the optimizers themselves."""
        one, other = self.optimizers(use_pl_optimizer=False)
        one.zero_grad()
        other.zero_grad()
        sum(self.losses(batch)).backward()
        one.step()
        other.step()


@pytest.mark.parametrize(
    "how", ["alternating", "toggled", "accumulating", "accumulating_locally", "by_closure", "without_lightning"]
)
def test_loops_of_the_users_own(how: str) -> None:
    assert_equals_one_process(Manual(how))


@pytest.mark.usefixtures("several_ranks")
def test_reduced_gradients_are_not_added_up_by_other_ops() -> None:
    """Sum would count what is reduced already once per rank."""
    with pytest.raises(AssertionError, match="more than backward_passes_per_step times"):
        horovod(strategy=HorovodStrategy(op=hvd.Sum), max_epochs=1, precision="64-true").fit(
            Manual("accumulating"), own_batches()
        )


class Accumulating(Regression):
    """Notes after each pass whether all ranks have the same gradients."""

    def on_after_backward(self) -> None:
        weight = self.first.weight.grad
        self.seen.append(all(torch.equal(weight, other) for other in hvd.allgather_object(weight)))


@pytest.mark.usefixtures("several_ranks")
@pytest.mark.parametrize("op", [hvd.Average, hvd.Sum])
def test_passes_that_are_added_up_send_nothing(op: int) -> None:
    model = Accumulating()
    options = {"max_epochs": 1, "precision": "64-true", "accumulate_grad_batches": 2}
    horovod(strategy=HorovodStrategy(op=op), **options).fit(model, own_batches())
    assert model.seen == [False, True, False, True, True]
    assert_equal_everywhere(model.parameters())


class Absent(Regression):
    """The last rank's loss reaches no parameter of the optimizer in the third step."""

    def __init__(self) -> None:
        super().__init__()
        self.apart = torch.nn.Parameter(torch.ones(()))

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        if index == 2 and hvd.rank() == hvd.size() - 1:
            return self.apart * 0.0
        return super().loss_of(batch)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD([*self.first.parameters(), *self.second.parameters()], lr=0.1)


class Careless(Manual):
    """Steps where it has asked for gradients of its own rank."""

    def training_step(self, batch: Any, index: int) -> None:
        one, _ = self.optimizers()
        self.manual_backward(self.losses(batch)[0])
        with one.toggle_model(sync_grad=False):
            one.step(closure=lambda: self.manual_backward(self.losses(batch)[0]))
            one.zero_grad()


@pytest.mark.usefixtures("several_ranks")
@pytest.mark.parametrize("model", [Absent(), Careless("by_closure")], ids=["absent", "careless"])
def test_a_step_never_uses_gradients_of_one_rank(model: Any) -> None:
    horovod(max_epochs=1, precision="64-true").fit(model, own_batches())
    assert_equal_everywhere(model.parameters())
