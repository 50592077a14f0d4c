"""Mixed precision: a gradient that overflows on one rank makes all ranks skip the step."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

import horovod.keras as hvd
from keras_world import ROWS, array, assert_equal_on_all_ranks, assert_usable, fit, flat, make_model, my_rows

SCALE = 2.0**6


def inside() -> Any:
    """As Keras does it itself in compile(), for mixed_float16."""
    return keras.optimizers.LossScaleOptimizer(
        hvd.DistributedOptimizer(keras.optimizers.SGD(0.05)), initial_scale=SCALE, dynamic_growth_steps=2
    )


def outside() -> Any:
    return hvd.DistributedOptimizer(
        keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.05), initial_scale=SCALE, dynamic_growth_steps=2)
    )


def poisoned(rank: int) -> Any:
    x, y = my_rows()
    if hvd.rank() == rank:
        y = np.full_like(y, np.inf)
    return x, y


@pytest.mark.parametrize("make", [inside, outside])
def test_all_ranks_skip_the_step_that_one_cannot_make(make: Any) -> None:
    model = make_model(make())
    before = flat(model.get_weights())
    fit(model, poisoned(hvd.size() - 1), ROWS)
    assert (flat(model.get_weights()) == before).all()
    assert float(array(model.optimizer.dynamic_scale)) == SCALE / 2
    fit(model, my_rows(), ROWS)
    assert (flat(model.get_weights()) != before).any()
    assert np.isfinite(flat(model.get_weights())).all()
    assert_equal_on_all_ranks(model.get_weights())
    assert_equal_on_all_ranks(model.optimizer.variables)
    assert_usable()


@pytest.mark.parametrize("make", [inside, outside])
def test_the_scale_grows_on_all_ranks_and_changes_nothing_else(make: Any) -> None:
    model = make_model(make())
    fit(model, my_rows(2), ROWS)
    assert float(array(model.optimizer.dynamic_scale)) == 2 * SCALE
    plain = make_model(hvd.DistributedOptimizer(keras.optimizers.SGD(0.05)))
    fit(plain, my_rows(2), ROWS)
    assert (flat(model.get_weights()) == flat(plain.get_weights())).all(), "powers of two are exact"


@pytest.mark.parametrize("compiled", [True, False])
def test_a_local_gradient_that_overflows_counts_too(compiled: bool) -> None:
    model = make_model(None)
    optimizer = hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.05), local_layers=list(model.layers))
    options = {"jit_compile": compiled and keras.backend.backend() == "jax"}
    scaling = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=SCALE)
    model.compile(optimizer=scaling, loss="mse", **options)
    before = flat(model.get_weights())
    fit(model, poisoned(0), ROWS)
    assert (flat(model.get_weights()) == before).all()
    assert float(array(scaling.dynamic_scale)) == SCALE / 2
    fit(model, my_rows(), ROWS)
    assert np.isfinite(flat(model.get_weights())).all()
    assert_equal_on_all_ranks(scaling.variables)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision_trains(policy: str) -> None:
    keras.mixed_precision.set_global_policy(policy)
    try:
        layers = keras.layers
        model = keras.Sequential([layers.Input((6,)), layers.Dense(4), layers.Dense(1)])
        model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
        assert (type(model.optimizer).__name__ == "LossScaleOptimizer") == (policy == "mixed_float16")
        fit(model, my_rows(4), ROWS, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
    finally:
        keras.mixed_precision.set_global_policy("float32")
    assert_equal_on_all_ranks(model.trainable_weights)


def test_gradients_of_bfloat16_are_reduced_as_such() -> None:
    layers = keras.layers
    model = keras.Sequential([layers.Input((6,)), layers.Dense(1, dtype="bfloat16")])
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
    fit(model, my_rows(2), ROWS, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
    kernel = model.layers[0].kernel
    assert keras.backend.standardize_dtype(kernel.dtype) == "bfloat16"
    assert_equal_on_all_ranks([keras.ops.cast(kernel, "float32")])
