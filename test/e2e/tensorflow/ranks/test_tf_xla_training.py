"""Training steps that XLA compiles: tapes, Keras' fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_tfk
from horovod.tensorflow import _xla_support
from test_tf_xla import calls
from tf_world import array, same

pytestmark = [pytest.mark.usefixtures("xla"), pytest.mark.two_ranks]


def variables() -> list[Any]:
    """Of several types; the same on all ranks."""
    shapes = [(4, 3), (3,), (7, 2), ()] * 5
    return [tf.Variable(tf.ones(shape, [tf.float32, tf.float64][i % 2])) for i, shape in enumerate(shapes)]


def make_step(own: list[Any], **options: Any) -> Any:
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.cast(tf.reduce_sum(v * v), tf.float32) for v in own]) * x
        grads = hvd.DistributedGradientTape(tape, **options).gradient(loss, own)
        for variable, grad in zip(own, grads, strict=True):
            variable.assign_sub(grad * tf.cast(0.01, grad.dtype))
        return loss

    return step


@pytest.mark.parametrize("options", [{}, {"groups": 2}, {"op": hvd.Sum, "compression": hvd.Compression.fp16}])
def test_a_tape_in_a_compiled_step(options: dict[str, Any]) -> None:
    own, expected = variables(), variables()
    step, plain_step = tf.function(make_step(own, **options), jit_compile=True), make_step(expected, **options)
    given = tf.constant(1.0 + hvd.rank())
    for _ in range(3):
        step(given)
        plain_step(given)
    for variable, other in zip(own, expected, strict=True):
        np.testing.assert_allclose(array(variable), array(other), rtol=1e-6)
        for one in hvd.allgather(tf.reshape(variable, [1, -1])):
            same(one, array(variable).reshape(-1))


@pytest.mark.usefixtures("several_ranks")
def test_a_set_of_gradients_is_one_call() -> None:
    """One by one they would not be fused, each would cost a round trip."""
    own = variables()
    step = tf.function(make_step(own), jit_compile=True)
    assert calls(step, tf.constant(1.0)) == 1


def test_sparse_gradients_of_equal_length() -> None:
    table = tf.Variable(tf.ones([10, 3]))

    def step(sparse_as_dense: bool) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, [1, 2, 1 + hvd.rank()]))
        grad = hvd.DistributedGradientTape(tape, sparse_as_dense=sparse_as_dense).gradient(loss, [table])[0]
        return tf.convert_to_tensor(grad)

    sparse = tf.function(lambda: step(False), jit_compile=True)()
    same(sparse, step(False))
    same(tf.function(lambda: step(True), jit_compile=True)(), step(True))


def make_model(jit_compile: Any = True, **compile_options: Any) -> Any:
    tf.keras.utils.set_random_seed(hvd.rank())
    layers = [tf.keras.layers.Input((8,)), tf.keras.layers.Dense(16, activation="relu"), tf.keras.layers.Dense(1)]
    model = tf.keras.Sequential(layers)
    optimizer = hvd_tfk.DistributedOptimizer(tf.keras.optimizers.Adam(0.01))
    model.compile(optimizer, loss="mse", jit_compile=jit_compile, **compile_options)
    return model


def data() -> tuple[Any, Any]:
    """Another share on each rank, with a last batch that is not full."""
    random = np.random.default_rng(hvd.rank())
    x = random.normal(size=(70, 8)).astype(np.float32)
    return x, x.sum(axis=1, keepdims=True)


def assert_equal_weights(model: Any) -> None:
    for weight in model.get_weights():
        for one in hvd.allgather(tf.reshape(weight, [1, -1])):
            same(one, weight.reshape(-1))


@pytest.mark.parametrize("options", [{}, {"steps_per_execution": 2}])
def test_fit_is_compiled_and_learns(options: dict[str, Any]) -> None:
    model = make_model(**options)
    callback = hvd_tfk.callbacks.BroadcastGlobalVariablesCallback(0)
    callbacks = [callback, hvd_tfk.callbacks.MetricAverageCallback()]
    history = model.fit(*data(), batch_size=16, epochs=4, verbose=0, callbacks=callbacks)
    assert callback.broadcast_done
    assert model.jit_compile
    assert history.history["loss"][-1] < history.history["loss"][0]
    assert_equal_weights(model)


@pytest.mark.parametrize("other", [None, "MetricAverageCallback", "LearningRateWarmupCallback"])
def test_fit_is_not_compiled_where_that_cannot_work(monkeypatch: pytest.MonkeyPatch, other: str | None) -> None:
    """Keras chooses XLA by itself where there is a GPU. Any of the callbacks undoes that."""
    monkeypatch.setattr("horovod._keras.tensorflow.xla_problem", lambda: "there is a GPU")
    monkeypatch.setattr(_xla_support, "problem", lambda: "there is a GPU")
    model = make_model()
    callback = hvd_tfk.callbacks.BroadcastGlobalVariablesCallback(0)
    if other is not None:
        options = {"initial_lr": 0.01} if "Rate" in other else {}
        callback = getattr(hvd_tfk.callbacks, other)(**options)
    model.fit(*data(), batch_size=35, verbose=0, callbacks=[callback])
    assert not model.jit_compile
    if other is None:
        assert_equal_weights(model)


@pytest.mark.usefixtures("several_ranks")
def test_fit_without_callbacks_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_xla_support, "problem", lambda: "there is a GPU")
    with pytest.raises(RuntimeError, match=r"there is a GPU.*jit_compile=False"):
        make_model().fit(*data(), batch_size=35, verbose=0)


@pytest.mark.parametrize(("policy", "passes"), [("float32", 1), ("mixed_float16", 2)])
def test_fit_with_loss_scaling_aggregation_and_synchronous_normalisation(policy: str, passes: int) -> None:
    tf.keras.mixed_precision.set_global_policy(policy)
    try:
        normalize = hvd.SyncBatchNormalization(name="normalize")  # matched by names, and ranks have built other models
        layers = [tf.keras.layers.Input((8,)), normalize, tf.keras.layers.Dense(1, dtype="float32")]
        model = tf.keras.Sequential(layers, name="model")
        optimizer = hvd_tfk.DistributedOptimizer(tf.keras.optimizers.SGD(0.01), backward_passes_per_step=passes)
        model.compile(optimizer, loss="mse", jit_compile=True)
        callback = hvd_tfk.callbacks.BroadcastGlobalVariablesCallback(0)
        model.fit(*data(), batch_size=14, epochs=2, verbose=0, callbacks=[callback])
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")
    assert model.jit_compile
    for weight in model.trainable_variables:
        for one in hvd.allgather(tf.reshape(weight, [1, -1])):
            same(one, array(weight).reshape(-1))
