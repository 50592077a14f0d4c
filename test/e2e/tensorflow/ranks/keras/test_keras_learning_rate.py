"""The learning-rate callbacks: the rate of every batch, and a momentum that changes inside a compiled train step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow.keras as hvd_keras
from horovod._keras.momentum import Momentum
from keras_callbacks import *  # noqa: F403  the tests that horovod.keras has too

pytestmark = pytest.mark.two_ranks

keras = tf.keras
callbacks = hvd_keras.callbacks
BATCHES = 3


class Recorder(keras.callbacks.Callback):  # type: ignore[misc,name-defined]
    """What the learning rate and the momentum are in every batch."""

    def __init__(self) -> None:
        super().__init__()
        self.rates: list[float] = []
        self.momenta: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del batch, logs
        self.rates.append(float(self.model.optimizer.learning_rate.numpy()))
        momentum = getattr(self.model.optimizer, "momentum", 0.0)
        self.momenta.append(float(getattr(momentum, "numpy", lambda: momentum)()))


def data() -> tuple[Any, Any]:
    return np.ones((BATCHES, 1), np.float32), np.ones((BATCHES, 1), np.float32)


def model_with(optimizer: Any, **options: Any) -> Any:
    model = keras.Sequential(
        [keras.layers.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")]
    )
    model.compile(optimizer, loss=lambda y, out: tf.reduce_mean(out * y), **options)
    return model


def test_the_steps_of_an_epoch_must_be_known() -> None:
    model = model_with(hvd_keras.DistributedOptimizer(keras.optimizers.SGD(1.0)))
    endless = tf.data.Dataset.from_generator(
        lambda: iter([data()]), output_types=(tf.float32, tf.float32), output_shapes=((None, 1), (None, 1))
    )
    with pytest.raises(ValueError, match="steps_per_epoch"):
        model.fit(endless, verbose=0, callbacks=[callbacks.LearningRateWarmupCallback(0.5)])


def by_hand(rates: list[float], corrected: bool, nesterov: bool) -> float:
    """The weight after gradients of one. The momentum is scaled in the batches that change the rate."""
    weight, velocity, before = 0.0, 0.0, 1.0
    for rate in rates:
        momentum = 0.5 * (rate / before if corrected else 1.0)
        before = rate
        velocity = momentum * velocity - rate
        weight += momentum * velocity - rate if nesterov else velocity
    return weight


@pytest.mark.parametrize("corrected", [True, False])
@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("options", [{}, {"run_eagerly": True}], ids=str)
def test_momentum_is_corrected_in_the_train_step(corrected: bool, nesterov: bool, options: dict[str, Any]) -> None:
    optimizer = keras.optimizers.SGD(1.0, momentum=0.5, nesterov=nesterov)
    model = model_with(hvd_keras.DistributedOptimizer(optimizer), **options)
    model.fit(*data(), batch_size=1, epochs=1, verbose=0)  # traces the train step before there is a callback
    model.set_weights([np.zeros((1, 1), np.float32)])
    for variable in model.optimizer.momentums:
        variable.assign(tf.zeros(variable.shape))
    callback = callbacks.LearningRateScheduleCallback(1.0, lambda epoch: 0.5**epoch, momentum_correction=corrected)
    recorder = Recorder()
    model.fit(*data(), batch_size=1, epochs=3, verbose=0, callbacks=[recorder, callback])
    rates = [0.5**epoch for epoch in range(3) for _ in range(BATCHES)]
    assert recorder.rates == pytest.approx(rates)
    expected = [0.5 if batch % BATCHES or not batch or not corrected else 0.25 for batch in range(len(rates))]
    assert recorder.momenta == pytest.approx(expected)
    assert model.get_weights()[0][0, 0] == pytest.approx(by_hand(rates, corrected, nesterov), rel=1e-6)
    assert float(model.optimizer.momentum) == 0.5


MOMENTA: list[Callable[[], Any]] = [
    lambda: keras.optimizers.RMSprop(0.1, momentum=0.5),
    lambda: keras.optimizers.SGD(0.1, momentum=0.5, global_clipnorm=1.0, nesterov=True),
]


@pytest.mark.parametrize("make", MOMENTA)
def test_optimizers_with_a_momentum_train_and_save_a_plain_one(make: Callable[[], Any]) -> None:
    corrected = []
    for correct in (True, False):
        model = model_with(hvd_keras.DistributedOptimizer(make()))
        callback = callbacks.LearningRateScheduleCallback(0.1, lambda _: 1.0, momentum_correction=correct)
        model.fit(*data(), batch_size=1, epochs=2, verbose=0, callbacks=[callback])
        assert type(model.optimizer.get_config()["momentum"]) is float
        corrected.append(model.get_weights()[0])
    assert (corrected[0] == corrected[1]).all(), "a rate that does not change corrects nothing"


def test_momentum_is_corrected_inside_a_loss_scale_optimizer() -> None:
    optimizer = keras.mixed_precision.LossScaleOptimizer(
        hvd_keras.DistributedOptimizer(keras.optimizers.SGD(1.0, momentum=0.5))
    )
    model = model_with(optimizer)
    callback = callbacks.LearningRateScheduleCallback(1.0, lambda epoch: 0.5**epoch)
    model.fit(*data(), batch_size=1, epochs=2, verbose=0, callbacks=[callback])
    rates = [0.5**epoch for epoch in range(2) for _ in range(BATCHES)]
    assert model.get_weights()[0][0, 0] == pytest.approx(by_hand(rates, True, False), rel=1e-6)


def test_the_momentum_is_a_float_for_python() -> None:
    momentum = Momentum(0.5, tf.Variable(0.25))
    assert momentum == 0.5
    assert isinstance(momentum, float)
    assert (momentum * tf.constant(2.0)).numpy() == 0.5
    assert tf.cast(momentum, tf.float64).numpy() == 0.25
    assert type(momentum.__reduce__()[0](*momentum.__reduce__()[1])) is float
