"""fit() on N ranks gives what fit() on one process gives with the batches of all ranks put together, in float64."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod.keras as hvd_alone
import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
from tf_world import KERAS_3

pytestmark = pytest.mark.two_ranks

keras = tf.keras
ROWS = 2
BATCHES = 6


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    for type_ in ("float64", "float32"):
        keras.backend.set_floatx(type_)
        keras.mixed_precision.set_global_policy(type_)  # Keras 3 takes it from floatx once, for the first model
        if type_ == "float64":
            yield


def part(rank: int) -> tuple[Any, Any]:
    random = np.random.default_rng(rank + 1)
    x = random.normal(size=(BATCHES * ROWS, 3))
    return x, x[:, :1] * 2.0 - x[:, 1:2] + random.normal(size=(BATCHES * ROWS, 1))


def everything() -> tuple[Any, Any]:
    """Batch by batch: that of rank 0, that of rank 1, ..."""
    parts = [part(rank) for rank in range(hvd.size())]
    xs, ys = ([array.reshape(BATCHES, ROWS, -1) for array in arrays] for arrays in zip(*parts, strict=True))
    return tuple(np.concatenate(arrays, axis=1).reshape(-1, arrays[0].shape[-1]) for arrays in (xs, ys))  # type: ignore[return-value]


def net() -> Any:
    layer = keras.layers.Dense
    keras.utils.set_random_seed(11)
    return keras.Sequential(
        [
            keras.layers.Input((3,)),
            layer(4, activation="tanh"),
            layer(1),
        ]
    )


def mse(y: Any, out: Any) -> Any:
    return tf.reduce_mean(tf.square(tf.cast(y, out.dtype) - out))


@functools.cache
def reference(kind: str, passes: int = 1) -> list[Any]:
    """The weights of one process; kept, as several tests want the same."""
    model = trained(OPTIMIZERS[kind](), everything(), passes * ROWS * hvd.size(), run_eagerly=True)  # the quickest
    return list(model.get_weights())


def trained(optimizer: Any, data: tuple[Any, Any], batch_size: int, **options: Any) -> Any:
    model = net()
    model.compile(optimizer, loss=mse, **options)
    model.fit(*data, batch_size=batch_size, epochs=2, shuffle=False, verbose=0)
    return model


def assert_equal(model: Any, expected: list[Any]) -> None:
    for one, other in zip(model.get_weights(), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-13)
    weights = hvd.allgather_object([array.tobytes() for array in model.get_weights()])
    assert all(other == weights[0] for other in weights), "bitwise"


sgd, adam = keras.optimizers.SGD, keras.optimizers.Adam
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "plain": lambda: sgd(0.1),
    "momentum": lambda: sgd(0.1, momentum=0.9, nesterov=True),
    "clipnorm": lambda: sgd(0.1, clipnorm=0.05),
    "clipvalue": lambda: sgd(0.1, clipvalue=0.02),
    "clipped by all": lambda: sgd(0.1, global_clipnorm=0.1),
    "weight_decay": lambda: adam(0.1, weight_decay=0.05),
    "ema": lambda: adam(0.1, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=3),
    "ema at the end": lambda: sgd(0.1, use_ema=True, ema_momentum=0.9),
    "schedule": lambda: sgd(keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)),
}
if KERAS_3:
    OPTIMIZERS["accumulation"] = lambda: adam(0.1, gradient_accumulation_steps=3)
    OPTIMIZERS["accumulation and clipping"] = lambda: sgd(0.1, gradient_accumulation_steps=2, global_clipnorm=0.1)
    OPTIMIZERS["loss_scale_factor"] = lambda: sgd(0.1, loss_scale_factor=64.0)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_options_of_the_optimizer(kind: str) -> None:
    model = trained(hvd_keras.DistributedOptimizer(OPTIMIZERS[kind]()), part(hvd.rank()), ROWS)
    assert_equal(model, reference(kind))


COMPILE: list[tuple[str, dict[str, Any]]] = [
    ("momentum", {"run_eagerly": True}),
    ("ema", {"steps_per_execution": 3}),
    ("accumulation", {"steps_per_execution": 4}),
]


@pytest.mark.parametrize(("kind", "options"), COMPILE, ids=str)
def test_options_of_compile(kind: str, options: dict[str, Any]) -> None:
    kind = kind if kind in OPTIMIZERS else "momentum"
    model = trained(hvd_keras.DistributedOptimizer(OPTIMIZERS[kind]()), part(hvd.rank()), ROWS, **options)
    assert_equal(model, reference(kind))
    assert int(model.optimizer.iterations.numpy()) == 2 * BATCHES // (3 if kind == "accumulation" else 1)


GROUPS: list[dict[str, Any]] = [
    {"groups": 2},
    {"gradient_predivide_factor": 4.0},
    {"groups": 1, "sparse_as_dense": True},
    {"process_set": hvd.global_process_set, "name": "own"},
]


@pytest.mark.parametrize("options", GROUPS, ids=str)
def test_options_of_the_wrapper(options: dict[str, Any]) -> None:
    model = trained(hvd_keras.DistributedOptimizer(sgd(0.1), **options), part(hvd.rank()), ROWS)
    assert_equal(model, reference("plain"))


def test_groups_of_variables() -> None:
    model = net()
    first, second = model.layers[-2], model.layers[-1]
    optimizer = hvd_keras.DistributedOptimizer(sgd(0.1), groups=[[*first.trainable_variables], [second.kernel]])
    model.compile(optimizer, loss=mse)
    model.fit(*part(hvd.rank()), batch_size=ROWS, epochs=2, shuffle=False, verbose=0)
    assert_equal(model, reference("plain"))


PASSES: list[tuple[int, bool, dict[str, Any]]] = [
    (2, True, {"run_eagerly": True}),
    (2, False, {"steps_per_execution": 4}),
    (3, True, {}),
    (3, False, {}),
]


@pytest.mark.parametrize(("passes", "average", "options"), PASSES, ids=str)
def test_passes_are_one_larger_batch(passes: int, average: bool, options: dict[str, Any]) -> None:
    optimizer = hvd_keras.DistributedOptimizer(
        sgd(0.1, momentum=0.5), backward_passes_per_step=passes, average_aggregated_gradients=average
    )
    model = trained(optimizer, part(hvd.rank()), ROWS, **options)
    one_process = sgd(0.1 if average else 0.1 * passes, momentum=0.5)
    expected = trained(one_process, everything(), passes * ROWS * hvd.size(), run_eagerly=True)
    assert_equal(model, expected.get_weights())
    assert int(model.optimizer.iterations.numpy()) == 2 * BATCHES
    assert int(model.optimizer._agg_helper.counter.numpy()) == 0


def test_clipping_comes_after_the_passes_are_reduced() -> None:
    optimizer = hvd_keras.DistributedOptimizer(
        sgd(0.1, global_clipnorm=0.1), backward_passes_per_step=2, average_aggregated_gradients=True
    )
    model = trained(optimizer, part(hvd.rank()), ROWS)
    assert_equal(model, reference("clipped by all", passes=2))


def test_an_infinite_gradient_does_not_outlive_its_step() -> None:
    variable = tf.Variable([1.0])
    optimizer = hvd_keras.DistributedOptimizer(sgd(1.0), backward_passes_per_step=2)
    for factor in (float("inf"), 1.0):
        optimizer.apply_gradients(optimizer.compute_gradients(lambda f=factor: f * variable, [variable], tape=None))
    assert not np.isfinite(variable.numpy()).any()
    variable.assign([1.0])
    for slot in getattr(optimizer, "momentums", ()):  # Keras 2 has them without a momentum too
        slot.assign([0.0])
    for factor in (1.0, 2.0):
        optimizer.apply_gradients(optimizer.compute_gradients(lambda f=factor: f * variable, [variable], tape=None))
        assert int(optimizer._agg_helper.counter.numpy()) == (1 if factor == 1.0 else 0)
    assert variable.numpy()[0] == 1.0 - 3.0


# ---- gradients that stay on their rank


def gradients(rank: int) -> list[Any]:
    """Of the first batch of a rank, at the start."""
    model = net()
    x, y = part(rank)
    with tf.GradientTape() as tape:
        loss = mse(y[:ROWS], model(x[:ROWS]))
    return [grad.numpy() for grad in tape.gradient(loss, model.trainable_variables)]


def assert_one_step(model: Any, local: list[int], scale: bool, passes: int = 1) -> None:
    """`local`: which variables are local. Every pass has the same batch."""
    start = net().get_weights()
    of_all = [gradients(rank) for rank in range(hvd.size())]
    for i, weight in enumerate(model.get_weights()):
        grad = (
            of_all[hvd.rank()][i] / (hvd.size() if scale else 1) if i in local else np.mean([g[i] for g in of_all], 0)
        )
        np.testing.assert_allclose(weight, start[i] - 0.1 * passes * grad, rtol=1e-6, atol=1e-9)


def step(model: Any, optimizer: Any, passes: int = 1) -> Any:
    x, y = part(hvd.rank())
    model.compile(optimizer, loss=mse)
    if passes > 1:  # the weights do not move in between
        x, y = np.concatenate([x[:ROWS]] * passes), np.concatenate([y[:ROWS]] * passes)
    model.fit(x[: ROWS * passes], y[: ROWS * passes], batch_size=ROWS, shuffle=False, verbose=0)
    return model


LOCAL: dict[str, Callable[[Any], Any]] = {
    "a layer": lambda model: model.layers[-1],
    "a set": lambda model: {model.layers[-1]},
}


@pytest.mark.parametrize(("given", "scale"), [("a layer", True), ("a set", False)])
def test_local_layers_stay_local(given: str, scale: bool) -> None:
    model = net()
    optimizer = hvd_alone.PartialDistributedOptimizer(
        sgd(0.1), local_layers=LOCAL[given](model), scale_local_gradients=scale
    )
    assert_one_step(step(model, optimizer), [2, 3], scale)


def test_a_layer_that_is_not_built_yet_may_be_local() -> None:
    layer = keras.layers.Dense(1)
    optimizer = hvd_alone.PartialDistributedOptimizer(sgd(0.1), local_layers=layer)
    model = keras.Sequential([*net().layers[:-1], layer])
    model.build((None, 3))
    model.set_weights(net().get_weights())
    assert_one_step(step(model, optimizer), [2, 3], True)


def test_local_layers_and_passes() -> None:
    model = net()
    optimizer = hvd_alone.PartialDistributedOptimizer(
        sgd(0.1), local_layers=model.layers[-2], backward_passes_per_step=2
    )
    assert_one_step(step(model, optimizer, passes=2), [0, 1], True, passes=2)


@pytest.mark.parametrize(("scale", "passes"), [(True, 2), (False, 1)])
def test_a_variable_is_registered_as_local(scale: bool, passes: int) -> None:
    model = net()
    optimizer = hvd_keras.DistributedOptimizer(sgd(0.1), scale_local_gradients=scale, backward_passes_per_step=passes)
    optimizer.register_local_var(model.trainable_variables[1])
    assert_one_step(step(model, optimizer, passes), [1], scale, passes)


@pytest.mark.parametrize("layers", [3, "dense", [1]])
def test_local_layers_are_layers(layers: Any) -> None:
    with pytest.raises(ValueError, match="local_layers must be a Keras layer or a collection"):
        hvd_alone.PartialDistributedOptimizer(sgd(0.1), local_layers=layers)
