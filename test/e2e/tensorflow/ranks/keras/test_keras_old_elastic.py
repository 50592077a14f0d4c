"""Elastic training of tf.keras: callbacks, states, and passes that end with their session."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
from tf_world import KERAS_3

pytestmark = pytest.mark.two_ranks

keras = tf.keras


class State(SimpleNamespace):
    """What the callbacks need of a state."""

    def commit(self) -> None:
        self.commits.append((self.epoch, self.batch))


def test_the_callbacks_of_elastic_training() -> None:
    state = State(batch=2, epoch=3, commits=[])
    elastic = hvd_keras.elastic
    shortened = elastic.UpdateBatchStateCallback(state)
    seen = []

    class Steps(keras.callbacks.Callback):  # type: ignore[misc,name-defined]
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            seen.append(shortened.params["steps"])

    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile(hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    rows = np.ones((4, 1), np.float32)
    commits = elastic.CommitStateCallback(state, batches_per_commit=2)
    epochs = elastic.UpdateEpochStateCallback(state)
    model.fit(rows, rows, batch_size=1, epochs=2, verbose=0, callbacks=[shortened, Steps(), epochs, commits])
    assert seen == [2, 4]
    assert state.commits == [(3, 3), (4, 0), (4, 1), (4, 3), (5, 0)]
    with pytest.raises(ValueError, match="batches_per_commit"):
        elastic.CommitStateCallback(state, batches_per_commit=0)


def test_a_tf_keras_state() -> None:
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile(hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)), loss="mse")
    state = hvd_keras.elastic.KerasState(model, epoch=hvd.rank())
    rows = np.full((4, 1), float(hvd.rank() + 1), np.float32)
    model.fit(rows, rows, batch_size=1, verbose=0)
    model.layers[-1].kernel.assign([[float(hvd.rank())]])
    state.sync()
    assert state.epoch == 0
    assert model.get_weights()[0] == 0.0
    model.fit(rows, rows, batch_size=1, verbose=0)
    assert model.get_weights()[0] != 0.0
    state.restore()
    assert model.get_weights()[0] == 0.0


@pytest.mark.parametrize("done", [1, 2])
def test_passes_end_with_their_session(done: int) -> None:
    """One rank lost its way after `done` of two passes; afterwards all ranks reduce together again, in every second."""
    optimizer = hvd_keras.DistributedOptimizer(keras.optimizers.SGD(1.0), backward_passes_per_step=2)
    weight = tf.Variable(0.0)

    def step() -> None:
        if KERAS_3:
            optimizer.apply_gradients([(tf.constant(1.0), weight)])
        else:  # whose gradients are reduced when they are computed
            optimizer.apply_gradients(optimizer.compute_gradients(lambda: weight * 1.0, [weight]))

    for _ in range(done):
        if done == 2 and _ == 1:
            hvd.shutdown()
            with pytest.raises((ValueError, tf.errors.UnknownError), match="init"):
                step()
            assert int(optimizer._agg_helper.counter.numpy()) == 2  # nothing was reduced

        else:
            step()
    hvd.shutdown()
    hvd.init()
    weight.assign(0.0)
    seen = []
    for _ in range(4):
        step()
        seen.append(float(weight.numpy()))
    assert seen == [0.0, -2.0, -2.0, -4.0]
