"""The callbacks of elastic training: an epoch that was interrupted goes on, with the batches that are left."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import keras
import pytest

import horovod.keras as hvd
from keras_world import ROWS, fit, make_model, my_rows

elastic = hvd.elastic


class State(SimpleNamespace):
    """What the callbacks need of a state."""

    def commit(self) -> None:
        self.commits.append((self.epoch, self.batch))


class Batches(keras.callbacks.Callback):  # type: ignore[misc]
    """How many batches each epoch had."""

    def __init__(self) -> None:
        super().__init__()
        self.of_epochs: list[int] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.of_epochs.append(0)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.of_epochs[-1] += 1


class StopAfter(keras.callbacks.Callback):  # type: ignore[misc]
    """As EarlyStopping does."""

    def __init__(self, epoch: int) -> None:
        super().__init__()
        self.epoch = epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if epoch == self.epoch:
            self.model.stop_training = True


def run(state: State, epochs: int, *others: Any) -> list[int]:
    model = make_model(hvd.DistributedOptimizer(keras.optimizers.SGD(0.05)))
    batches = Batches()
    own = [elastic.UpdateBatchStateCallback(state), elastic.UpdateEpochStateCallback(state)]
    commit = elastic.CommitStateCallback(state, batches_per_commit=2)
    fit(model, my_rows(4), ROWS, epochs=epochs, callbacks=[*others[:1], *own, *others[1:], commit, batches])
    return batches.of_epochs


def test_an_interrupted_epoch_has_the_batches_that_are_left() -> None:
    state = State(batch=2, epoch=3, commits=[])
    assert run(state, 2) == [2, 4]
    assert state.commits == [(3, 3), (4, 0), (4, 1), (4, 3), (5, 0)]


def test_an_epoch_that_is_not_interrupted_is_a_whole_one() -> None:
    state = State(batch=0, epoch=0, commits=[])
    assert run(state, 1) == [4]
    assert state.commits == [(0, 1), (0, 3), (1, 0)]


def test_a_fit_that_failed_within_a_shortened_epoch_leaves_nothing_behind() -> None:
    state = State(batch=2, epoch=0, commits=[])
    model = make_model(hvd.DistributedOptimizer(keras.optimizers.SGD(0.05)))
    shortened, batches = elastic.UpdateBatchStateCallback(state), Batches()

    class Failing(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        fit(model, my_rows(4), ROWS, callbacks=[shortened, Failing()])
    state.batch = 0
    fit(model, my_rows(4), ROWS, callbacks=[shortened, batches])
    assert batches.of_epochs == [4]


@pytest.mark.parametrize("is_first", [True, False])
def test_training_that_another_callback_stops_stays_stopped(is_first: bool) -> None:
    stop = [StopAfter(0)] if is_first else [keras.callbacks.Callback(), StopAfter(0)]
    assert run(State(batch=3, epoch=0, commits=[]), 3, *stop) == [1]


def test_a_commit_comes_after_one_batch_or_more() -> None:
    with pytest.raises(ValueError, match="batches_per_commit"):
        elastic.CommitStateCallback(State(), batches_per_commit=0)


def test_what_is_not_built_says_so() -> None:
    with pytest.raises(NotImplementedError, match=r"horovod\.keras\.elastic\.run is not built"):
        elastic.run(lambda state: None)
