"""Checkpoints follow the averages of the ranks' metrics; a broadcast leaves out what is each rank's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
from tf_world import KERAS_3

pytestmark = pytest.mark.two_ranks

keras = tf.keras
callbacks = hvd_keras.callbacks


def still(rate: float = 0.0) -> Any:
    """A model whose outputs are zero; it does not move with a rate of zero."""
    model = keras.Sequential(
        [keras.layers.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")]
    )
    model.compile(
        hvd_keras.DistributedOptimizer(keras.optimizers.SGD(rate)), loss="mean_squared_error", metrics=["mae"]
    )
    return model


def test_checkpoints_follow_the_averages(tmp_path: Path) -> None:
    """Rank 0 alone would keep the first epoch: its own loss gets worse, while the average gets better."""
    rank = hvd.rank()
    of_all = [[1.0, 2.0], [9.0, 1.0], [9.0, 1.0]][: hvd.size()]
    losses = of_all[rank]
    checkpoint = callbacks.BestModelCheckpoint(monitor="val_loss", mode="min")
    checkpoint.filepath = str(tmp_path / "best.keras")
    average, model = callbacks.MetricAverageCallback(), still()
    for callback in (average, checkpoint):
        callback.set_model(model)
        callback.set_params({"epochs": 2})
    checkpoint.on_train_begin()
    for epoch, loss in enumerate(losses):
        logs = {"val_loss": loss}
        for callback in (average, checkpoint):
            callback.on_epoch_end(epoch, logs)
    assert float(checkpoint.best) == pytest.approx(np.mean(of_all, axis=0).min())


def test_local_variables_are_left_out_of_the_broadcast() -> None:
    model = still(rate=0.5)
    model.set_weights([np.full((1, 1), float(hvd.rank()), np.float32)])
    other = tf.Variable(1.0)
    callback = callbacks.BroadcastGlobalVariablesCallback(0, local_variables=[other])
    callback.register_local_var(model.trainable_variables[0])
    x = np.ones((2, 1), np.float32)
    model.optimizer.register_local_var(model.trainable_variables[0])
    model.fit(x, x * 0, verbose=0, callbacks=[callback])
    assert callback.broadcast_done
    # The gradient is 2 * rank, scaled by the number of ranks
    assert model.get_weights()[0][0, 0] == pytest.approx(hvd.rank() * (1 - 1 / hvd.size()))


def test_the_broadcast_takes_the_optimizer_too_and_leaves_dropout_alone() -> None:
    rank = hvd.rank()
    keras.utils.set_random_seed(rank + 1)
    model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dropout(0.5), keras.layers.Dense(2)])
    optimizer = hvd_keras.DistributedOptimizer(keras.optimizers.Adam(0.01 * (rank + 1)))
    model.compile(optimizer, loss="mean_squared_error")
    x = np.random.default_rng(rank).normal(size=(4, 8)).astype(np.float32)
    model.fit(x, x[:, :2], verbose=0, callbacks=[callbacks.BroadcastGlobalVariablesCallback(0)])
    variables = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
    mine = [np.asarray(variable).tobytes() for variable in variables] + [w.tobytes() for w in model.get_weights()]
    of_all = hvd.allgather_object(mine)
    assert all(other == of_all[0] for other in of_all)
    # Keras 2 does not count the learning rate among the optimizer's variables
    assert float(optimizer.learning_rate.numpy()) == pytest.approx(0.01 if KERAS_3 else 0.01 * (rank + 1))
    masks = hvd.allgather_object(np.asarray(model.layers[-2](np.ones((1, 8), np.float32), training=True)).tobytes())
    assert len(set(masks)) == hvd.size()
