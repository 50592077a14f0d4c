"""The callbacks of horovod.keras."""

from __future__ import annotations

from typing import Any
from unittest import mock

import keras
import numpy as np
import pytest

import horovod.keras as hvd
from horovod._keras import callbacks as private
from horovod._keras import elastic as private_elastic
from keras_callbacks import *  # noqa: F403  the tests that tf.keras has too
from keras_world import (
    BACKEND,
    ROWS,
    array,
    assert_equal_on_all_ranks,
    fit,
    flat,
    make_model,
    my_rows,
)

callbacks = hvd.callbacks


def distributed(**options: Any) -> Any:
    return hvd.DistributedOptimizer(keras.optimizers.SGD(0.05, momentum=0.9), **options)


# Broadcast


def test_all_ranks_go_on_with_what_the_root_has() -> None:
    root = hvd.size() - 1
    model = make_model(distributed(), seed=hvd.rank())
    broadcast = callbacks.BroadcastGlobalVariablesCallback(root)
    fit(model, my_rows(3), ROWS, callbacks=[broadcast])
    assert broadcast.broadcast_done
    assert_equal_on_all_ranks(model.get_weights())
    assert_equal_on_all_ranks(model.optimizer.variables)
    if hvd.rank() != root:
        return
    alone = make_model(distributed(), seed=root)
    assert flat(alone.get_weights()).shape == flat(model.get_weights()).shape


@pytest.mark.usefixtures("several_ranks")
def test_it_is_the_state_of_the_root_after_one_batch() -> None:
    model = make_model(keras.optimizers.SGD(0.0), seed=hvd.rank())
    with pytest.warns(UserWarning, match="plain SGD"):
        fit(model, my_rows(1), ROWS, callbacks=[callbacks.BroadcastGlobalVariablesCallback(1)])
    expected = make_model(keras.optimizers.SGD(0.0), seed=1)
    assert (flat(model.get_weights()) == flat(expected.get_weights())).all()


def test_it_happens_once() -> None:
    model = make_model(distributed())
    broadcast = callbacks.BroadcastGlobalVariablesCallback(0)
    fit(model, my_rows(1), ROWS, callbacks=[broadcast])
    model.layers[0].bias.assign(np.full(model.layers[0].bias.shape, hvd.rank(), np.float32))
    own = array(model.layers[0].bias).copy()
    model.optimizer.learning_rate = 0.0
    model.optimizer.momentums[1].assign(np.zeros(own.shape, np.float32))
    fit(model, my_rows(1), ROWS, callbacks=[broadcast])
    assert (array(model.layers[0].bias) == own).all()


@pytest.mark.usefixtures("several_ranks")
def test_local_variables_stay_what_they_are() -> None:
    model = make_model(hvd.DistributedOptimizer(keras.optimizers.SGD(0.0)), seed=hvd.rank())
    kernel, bias = model.layers[0].trainable_weights
    own = array(kernel).copy(), array(bias).copy()
    broadcast = callbacks.BroadcastGlobalVariablesCallback(0, local_variables=kernel)
    broadcast.register_local_var(bias)
    fit(model, my_rows(1), ROWS, callbacks=[broadcast])
    assert (array(kernel) == own[0]).all()
    assert (array(bias) == own[1]).all()
    assert_equal_on_all_ranks(model.layers[1].trainable_weights)


def test_random_generators_stay_different() -> None:
    layers = keras.layers
    model = keras.Sequential([layers.Input((6,)), layers.Dropout(0.5), layers.Dense(1)])
    model.compile(optimizer=distributed(), loss="mse")
    fit(model, my_rows(1), ROWS, callbacks=[callbacks.BroadcastGlobalVariablesCallback(0)])
    assert_equal_on_all_ranks(model.trainable_weights)
    state = next(v for v in model.layers[0].variables if "seed" in v.path)
    states = hvd.allgather(array(state).astype(np.int64)[None] if BACKEND == "torch" else array(state)[None])
    assert len({tuple(row) for row in array(states).tolist()}) == hvd.size()


def test_moving_averages_of_normalisation_are_given_too() -> None:
    layers = keras.layers
    model = keras.Sequential([layers.Input((6,)), layers.BatchNormalization(), layers.Dense(1)])
    model.compile(optimizer=distributed(), loss="mse")
    fit(model, my_rows(1), ROWS, callbacks=[callbacks.BroadcastGlobalVariablesCallback(0)])
    assert_equal_on_all_ranks(model.layers[0].non_trainable_variables)


# Of one's own


def derived(implementation: type, *arguments: Any) -> Any:
    """A callback as scripts of the times of Horovod 0.28 made it, which needed other arguments than the public one."""

    class Own(implementation, keras.callbacks.Callback):  # type: ignore[misc,valid-type]
        def __init__(self) -> None:
            super().__init__(keras.backend, *arguments)

    return Own()


def test_callbacks_may_be_made_of_the_private_classes() -> None:
    root, state = hvd.size() - 1, mock.MagicMock(batch=0, epoch=0)
    model = make_model(distributed(), seed=hvd.rank())
    made = [
        derived(private.BroadcastGlobalVariablesCallbackImpl, root),
        derived(private.MetricAverageCallbackImpl, ""),
        derived(private.LearningRateScheduleCallbackImpl, 0.05, 0.5),
        derived(private.LearningRateWarmupCallbackImpl, 0.05, 1),
        derived(private_elastic.CommitStateCallbackImpl, state, 1),
        derived(private_elastic.UpdateBatchStateCallbackImpl, state),
        derived(private_elastic.UpdateEpochStateCallbackImpl, state),
    ]
    history = fit(model, my_rows(2), ROWS, callbacks=made).history
    assert_equal_on_all_ranks(model.get_weights())
    assert_equal_on_all_ranks([np.array(history["loss"])])
    assert (state.epoch, state.batch, state.commit.call_count) == (1, 0, 3)


# Learning rates


class Momenta(keras.callbacks.Callback):  # type: ignore[misc]
    """What the momentum was in each step."""

    def __init__(self) -> None:
        super().__init__()
        self.momenta: list[float] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.momenta.append(float(self.model.optimizer.momentum))


def test_the_steps_use_the_rate_that_is_set() -> None:
    weights = []
    for callback in ([callbacks.LearningRateScheduleCallback(0.1, 0.5)], []):
        model = make_model(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)))
        for epoch in range(2):
            if not callback:
                model.optimizer.learning_rate = 0.1 * 0.5**epoch
            epochs: Any = {"initial_epoch": epoch, "epochs": epoch + 1}
            model.fit(*my_rows(1), batch_size=ROWS, shuffle=False, callbacks=callback, verbose=0, **epochs)
        weights.append(flat(model.get_weights()))
    assert (weights[0] == weights[1]).all()


@pytest.mark.usefixtures("on_torch")
def test_the_momentum_is_corrected_for_the_batch_that_changes_the_rate() -> None:
    seen = Momenta()
    model = make_model(distributed())
    schedule = callbacks.LearningRateScheduleCallback(0.05, 0.5)
    fit(model, my_rows(2), ROWS, epochs=2, callbacks=[schedule, seen])
    np.testing.assert_allclose(seen.momenta, [0.9, 0.9, 0.45, 0.9], rtol=1e-6)


@pytest.mark.usefixtures("on_jax")
@pytest.mark.parametrize("compiled", [True, False])
def test_the_momentum_of_compiled_steps_stays(compiled: bool) -> None:
    seen = Momenta()
    model = make_model(distributed(), jit_compile=compiled)
    schedule = callbacks.LearningRateScheduleCallback(0.05, 0.5)
    fit(model, my_rows(2), ROWS, epochs=2, callbacks=[schedule, seen])
    np.testing.assert_allclose(seen.momenta, [0.9, 0.9, 0.9 if compiled else 0.45, 0.9], rtol=1e-6)
