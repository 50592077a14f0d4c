"""Elastic training: an epoch that was interrupted goes on, with the batches that are left, from the last commit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

import horovod.keras as hvd
from horovod.common.exceptions import HorovodInternalError
from keras_world import ROWS, array, assert_equal_on_all_ranks, assert_usable, fit, make_model, my_rows

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


# The state, and training that goes on from it


class LeaveAt(keras.callbacks.Callback):  # type: ignore[misc]
    """The last rank leaves the session after a batch, in its first fit()."""

    def __init__(self, batch: int) -> None:
        super().__init__()
        self.batch = batch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == self.batch and hvd.rank() == hvd.size() - 1:
            self.batch = -1
            hvd.shutdown()
            raise HorovodInternalError("this rank has lost its way")


def train(leave_at: int) -> tuple[list[Any], list[int]]:
    """Four batches an epoch, two epochs, a commit after every second batch; the weights, and where each fit() began."""
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    model = make_model(hvd.DistributedOptimizer(optimizer), seed=hvd.rank())
    state = elastic.KerasState(model, batch=0, epoch=0)
    leave, began = LeaveAt(leave_at), []

    @elastic.run
    def fit_from(state: Any) -> str:
        began.append(4 * state.epoch + state.batch)
        x, y = my_rows(4)
        rest = slice(state.batch * ROWS, None)
        if state.batch:  # what is left of the epoch that was interrupted
            fit(state.model, (x[rest], y[rest]), ROWS, callbacks=[leave])
            state.batch, state.epoch = 0, state.epoch + 1
        done = [elastic.UpdateBatchStateCallback(state), elastic.UpdateEpochStateCallback(state)]
        commit = elastic.CommitStateCallback(state, batches_per_commit=2)
        fit(state.model, (x, y), ROWS, epochs=2 - state.epoch, callbacks=[*done, commit, leave])
        return "done"

    assert fit_from(state) == "done"
    assert_usable()
    return [array(weight) for weight in model.get_weights()], began


def test_training_goes_on_from_the_last_commit() -> None:
    without, began = train(leave_at=-1)
    assert began == [0]
    after, began = train(leave_at=2)
    # batch 1 was committed, by its number; it is done again, as in Horovod
    assert began == [0, 1]
    assert_equal_on_all_ranks(after)
    assert len(without) == len(after)


def test_sync_gives_all_ranks_rank_0s_model_and_optimizer() -> None:
    model = make_model(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), seed=None)
    state = elastic.KerasState(model, word=f"of rank {hvd.rank()}", counts=[hvd.rank()])
    fit(model, my_rows(), ROWS)
    for position, variable in enumerate(model.trainable_variables):
        variable.assign(array(variable) + hvd.rank() * position)
    state.word = "not committed"
    state.sync()
    assert (state.word, state.counts) == ("of rank 0", [0])
    synchronised = [array(value) for value in (*model.variables, *optimizer_variables(model))]
    assert_equal_on_all_ranks(model.get_weights())
    fit(model, my_rows(), ROWS)
    state.restore()  # what sync() gave
    for value, expected in zip((*model.variables, *optimizer_variables(model)), synchronised, strict=True):
        np.testing.assert_array_equal(array(value), expected)


def optimizer_variables(model: Any) -> list[Any]:
    return list(model.optimizer.variables)


def test_a_model_without_variables_is_refused() -> None:
    with pytest.raises(ValueError, match="must be built"):
        elastic.KerasState(keras.Sequential([keras.layers.Dense(1)]))
