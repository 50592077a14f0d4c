"""Mixed precision: when one rank overflows alone, every rank skips the step and lowers its scale."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
from tf_world import KERAS_3

pytestmark = pytest.mark.two_ranks

SCALE = 8.0
STEPS = 6
STEP = 0.25  # of one rank: times the scale of 2 ** 15 it is a float16 still
OVERFLOWS_AT = 2

keras = tf.keras


@pytest.fixture(autouse=True)
def mixed_precision() -> Iterator[None]:
    keras.mixed_precision.set_global_policy("mixed_float16")
    yield
    keras.mixed_precision.set_global_policy("float32")


def inside(**options: Any) -> Any:
    return keras.mixed_precision.LossScaleOptimizer(
        hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.5), **options), initial_scale=SCALE
    )


def outside(**options: Any) -> Any:
    return hvd_keras.DistributedOptimizer(
        keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(0.5), initial_scale=SCALE), **options
    )


def by_compile(**options: Any) -> Any:
    """Keras makes the LossScaleOptimizer itself, with a scale of 2 ** 15."""
    return hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.5), **options)


WRAPS = (inside, outside, by_compile)


def linear() -> Any:
    return keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1, kernel_initializer="zeros")])


def fitted(make: Callable[..., Any], bad_rank: int, model: Any, **options: Any) -> Any:
    model.compile(
        make(**options), loss=lambda y, out: tf.reduce_mean(tf.cast(out, tf.float32) * tf.cast(y, tf.float32))
    )
    x = np.ones((STEPS, 1), np.float32)
    y = np.full((STEPS, 1), (hvd.rank() + 1) * STEP, np.float32)
    if hvd.rank() == bad_rank:
        y[OVERFLOWS_AT] = np.inf
    model.fit(x, y, batch_size=1, shuffle=False, verbose=0)
    return model


def scale_of(model: Any) -> float:
    optimizer = model.optimizer
    return float(optimizer.dynamic_scale.numpy() if KERAS_3 else optimizer.loss_scale.numpy())


def assert_steps(model: Any, applied: int, skipped: int) -> None:
    """Keras 2 counts the skipped ones too."""
    assert int(model.optimizer.iterations.numpy()) == applied + (0 if KERAS_3 else skipped)


@pytest.mark.parametrize("make", WRAPS)
def test_all_ranks_skip_when_one_overflows(make: Callable[..., Any]) -> None:
    model = fitted(make, hvd.size() - 1, linear())
    first = 2.0**15 if make is by_compile else SCALE
    assert scale_of(model) == first / 2
    assert_steps(model, STEPS - 1, 1)
    mean = (hvd.size() + 1) / 2
    assert model.get_weights()[0][0, 0] == -0.5 * STEP * mean * (STEPS - 1)


@pytest.mark.parametrize("make", WRAPS)
def test_nothing_is_skipped_without_overflow(make: Callable[..., Any]) -> None:
    model = fitted(make, -1, linear(), op=hvd.Sum)
    assert_steps(model, STEPS, 0)
    assert model.get_weights()[0][0, 0] == -0.5 * STEP * STEPS * sum(range(1, hvd.size() + 1))


@pytest.mark.parametrize("make", WRAPS)
def test_passes_are_added_up_and_skipped_together(make: Callable[..., Any]) -> None:
    """Passes 3 and 4 of 6 make the second step; the third pass overflows on one rank."""
    model = fitted(make, hvd.size() - 1, linear(), backward_passes_per_step=2)
    first = 2.0**15 if make is by_compile else SCALE
    assert scale_of(model) == first / 2
    mean = (hvd.size() + 1) / 2
    assert model.get_weights()[0][0, 0] == -0.5 * STEP * 2 * mean * 2


@pytest.mark.parametrize("make", WRAPS)
def test_a_local_variable_that_overflows_skips_the_step_everywhere(make: Callable[..., Any]) -> None:
    model = linear()
    optimizer = make()
    wrapped = optimizer.inner_optimizer if make is inside else optimizer
    for variable in model.trainable_variables:
        wrapped.register_local_var(variable)
    fitted(lambda: optimizer, hvd.size() - 1, model)
    assert_steps(model, STEPS - 1, 1)
    assert model.get_weights()[0][0, 0] == pytest.approx(-0.5 * STEP * (hvd.rank() + 1) / hvd.size() * (STEPS - 1))


if KERAS_3:

    def test_a_tape_has_reduced_already() -> None:
        model = linear()
        optimizer = inside(op=hvd.Sum)
        x = tf.ones((1, 1))

        @tf.function
        def step() -> None:
            with tf.GradientTape() as tape:
                loss = optimizer.scale_loss(tf.reduce_sum(tf.cast(model(x), tf.float32)))
            tape = hvd.DistributedGradientTape(tape, op=hvd.Sum)
            grads = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))

        step()
        assert model.get_weights()[0][0, 0] == -0.5 * hvd.size()

    def test_other_loss_scale_optimizers_work_as_before() -> None:
        model = linear()
        optimizer = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(0.5), initial_scale=SCALE)
        variable = model.trainable_variables[0]
        optimizer.apply([tf.fill((1, 1), SCALE * (hvd.rank() + 1))], [variable])
        assert variable.numpy()[0, 0] == -0.5 * (hvd.rank() + 1)
