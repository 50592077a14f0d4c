"""Keras 2's optimizers of old, tf.keras.optimizers.legacy, and what Keras 2 and 3 offer alike."""

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


def mean() -> float:
    """Of the numbers 1 to size."""
    return (1 + hvd.size()) / 2


def linear() -> Any:
    return keras.Sequential(
        [keras.layers.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")]
    )


def fitted(optimizer: Any, steps: int = 4, **options: Any) -> Any:
    """The loss is the output times rank + 1: every gradient is that."""
    model = linear()
    model.compile(optimizer, loss=lambda y, out: tf.reduce_mean(out * tf.cast(y, out.dtype)), **options)
    y = np.full((steps, 1), float(hvd.rank() + 1), np.float32)
    model.fit(np.ones((steps, 1), np.float32), y, batch_size=1, shuffle=False, verbose=0)
    return model


def test_variables_are_a_list_that_may_be_called() -> None:
    optimizer = fitted(hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.5, momentum=0.5))).optimizer
    assert len(optimizer.variables) == len(optimizer.variables()) > 1
    assert optimizer._HAS_AGGREGATE_GRAD is True


def test_a_loss_may_be_a_function() -> None:
    variable = tf.Variable([0.0])
    optimizer = hvd_keras.DistributedOptimizer(keras.optimizers.SGD(1.0))
    pairs = optimizer.compute_gradients(lambda: variable * float(hvd.rank() + 1), [variable])
    optimizer.apply_gradients(pair for pair in pairs)
    assert variable.numpy()[0] == -mean()


if not KERAS_3:
    legacy = keras.optimizers.legacy

    @pytest.mark.parametrize("options", [{}, {"run_eagerly": True}, {"steps_per_execution": 2}], ids=str)
    def test_legacy_optimizers_reduce(options: dict[str, Any]) -> None:
        model = fitted(hvd_keras.DistributedOptimizer(legacy.SGD(0.5)), **options)
        assert model.get_weights()[0][0, 0] == -0.5 * 4 * mean()
        assert type(model.optimizer).__name__ == "SGD"
        assert type(model.optimizer).__module__ == "horovod._keras"

    def test_legacy_optimizers_add_passes_up() -> None:
        model = fitted(hvd_keras.DistributedOptimizer(legacy.SGD(0.5), backward_passes_per_step=2), steps=5)
        assert model.get_weights()[0][0, 0] == -0.5 * 4 * mean()
        assert int(model.optimizer.iterations.numpy()) == 5
        assert int(model.optimizer._agg_helper.counter.numpy()) == 1

    def test_legacy_momentum_is_corrected() -> None:
        model = linear()
        model.compile(
            hvd_keras.DistributedOptimizer(legacy.SGD(1.0, momentum=0.5)), loss=lambda _, out: tf.reduce_mean(out)
        )
        callback = hvd_keras.callbacks.LearningRateScheduleCallback(1.0, lambda epoch: 0.5**epoch)
        model.fit(np.ones((2, 1)), np.ones((2, 1)), batch_size=1, epochs=2, verbose=0, callbacks=[callback])
        # Velocities: -1, -1.5, then 0.25 * -1.5 - 0.5, 0.5 * that - 0.5
        assert model.get_weights()[0][0, 0] == -1.0 - 1.5 - 0.875 - 0.9375
        assert float(model.optimizer.momentum.numpy()) == 0.5

    @pytest.mark.parametrize("name", ["model.h5", "model.keras"])
    def test_legacy_optimizers_are_saved_and_loaded(name: str, tmp_path: Path) -> None:
        model = linear()
        model.compile(hvd_keras.DistributedOptimizer(legacy.SGD(0.25, momentum=0.5)), loss="mean_squared_error")
        model.fit(np.ones((2, 1)), np.ones((2, 1)), verbose=0)
        path = str(tmp_path / name)
        model.save(path)
        loaded = hvd_keras.load_model(path, legacy_opts=True)
        assert isinstance(loaded.optimizer, keras.optimizers.Optimizer | legacy.Optimizer)
        assert type(loaded.optimizer).__module__ == "horovod._keras"
        assert float(loaded.optimizer.learning_rate.numpy()) == 0.25
        if name == "model.h5":  # Keras 2 itself loses the state of legacy optimizers in the other format
            assert int(loaded.optimizer.iterations.numpy()) == 1
        loaded.fit(np.ones((2, 1)) * (hvd.rank() + 1), np.ones((2, 1)), verbose=0)
        weights = hvd.allgather_object(loaded.get_weights()[0].tobytes())
        assert all(other == weights[0] for other in weights)

    def test_a_state_of_a_graph() -> None:
        """In the session of Keras, which gives variables their values."""
        with tf.Graph().as_default():
            model = linear()
            model.compile(hvd_keras.DistributedOptimizer(legacy.SGD(0.5)), loss="mse")
            model.set_weights([np.full((1, 1), float(hvd.rank() + 1))])
            state = hvd_keras.elastic.KerasState(model, epoch=hvd.rank())
            state.sync()
            assert (model.get_weights()[0][0, 0], state.epoch) == (1.0, 0)
            model.set_weights([np.full((1, 1), 5.0)])
            state.restore()
            assert model.get_weights()[0][0, 0] == 1.0
