"""Elastic training: an epoch that was interrupted goes on, with the batches that are left, from the last commit."""

from __future__ import annotations

from typing import Any

import keras
import pytest

import horovod.keras as hvd
from horovod.common.exceptions import HorovodInternalError
from keras_elastic import *  # noqa: F403  the tests that tf.keras has too
from keras_world import ROWS, array, assert_equal_on_all_ranks, assert_usable, fit, make_model, my_rows

elastic = hvd.elastic


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


def test_a_model_without_variables_is_refused() -> None:
    with pytest.raises(ValueError, match="must be built"):
        elastic.KerasState(keras.Sequential([keras.layers.Dense(1)]))
