"""model.compile() and fit() with a distributed optimizer: many ranks do what one would do with all of their rows."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

import horovod.keras as hvd
from keras_world import (
    FEATURES,
    ROWS,
    all_rows,
    array,
    assert_equal_on_all_ranks,
    fit,
    flat,
    make_model,
    my_rows,
)

STEPS = 5
optimizers = keras.optimizers

# Sums of a few products of numbers around 1 in another order: some units in the last place (1.2e-7) a step.
CLOSE = {"rtol": 2e-5, "atol": 2e-6}

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "plain": lambda: optimizers.SGD(0.05),
    "momentum": lambda: optimizers.SGD(0.05, momentum=0.9),
    "adam": lambda: optimizers.Adam(0.01, epsilon=1e-3),  # a larger epsilon keeps small gradients from deciding
    "adamw": lambda: optimizers.AdamW(0.01, epsilon=1e-3),
    "rmsprop": lambda: optimizers.RMSprop(0.01, epsilon=1e-3),
    "clipped": lambda: optimizers.SGD(0.05, global_clipnorm=0.5),
    "averaged": lambda: optimizers.SGD(0.05, use_ema=True, ema_momentum=0.5),
    "accumulated": lambda: optimizers.SGD(0.05, momentum=0.9, gradient_accumulation_steps=2),
    "scaled": lambda: optimizers.SGD(0.05, loss_scale_factor=8.0),
}


def train(optimizer: Any, data: Any, rows: int, **options: Any) -> Any:
    model = make_model(optimizer, **options)
    fit(model, data, rows)
    return model


@functools.cache
def alone(kind: str = "plain", steps: int = STEPS) -> Any:
    """The weights of one process that has the rows of all. Kept: several tests want the same."""
    return flat(train(OPTIMIZERS[kind](), all_rows(steps), ROWS * hvd.size()).get_weights())


def assert_like_one_rank(optimizer: Any, kind: str = "plain", **options: Any) -> None:
    """Trains with each rank's rows, and without Horovod with all of them."""
    model = train(optimizer, my_rows(STEPS), ROWS, **options)
    assert_equal_on_all_ranks(model.get_weights())
    np.testing.assert_allclose(flat(model.get_weights()), alone(kind), **CLOSE)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_ranks_train_like_one_with_all_rows(kind: str) -> None:
    assert_like_one_rank(hvd.DistributedOptimizer(OPTIMIZERS[kind]()), kind)


@pytest.mark.usefixtures("several_ranks")
def test_without_the_wrapper_ranks_would_differ() -> None:
    model = train(optimizers.SGD(0.05), my_rows(STEPS), ROWS)
    weights = flat(model.get_weights())
    assert (array(hvd.allgather(weights[None])) != weights).any()


@pytest.mark.parametrize("how", [{"run_eagerly": True}, {"jit_compile": False}])
def test_steps_need_not_be_compiled(how: dict[str, Any]) -> None:
    assert_like_one_rank(hvd.DistributedOptimizer(optimizers.SGD(0.05)), **how)


@pytest.mark.usefixtures("on_jax")
def test_steps_are_compiled_unless_one_asks_otherwise() -> None:
    assert make_model(hvd.DistributedOptimizer(optimizers.SGD(0.05))).jit_compile


@pytest.mark.usefixtures("on_jax")
def test_several_steps_may_run_at_once() -> None:
    assert_like_one_rank(hvd.DistributedOptimizer(OPTIMIZERS["momentum"]()), "momentum", steps_per_execution=2)


def test_the_sum_is_size_times_the_average() -> None:
    optimizer = hvd.DistributedOptimizer(optimizers.SGD(0.05 / hvd.size()), op=hvd.Sum)
    assert_like_one_rank(optimizer)


def test_predivided_gradients_give_the_average() -> None:
    optimizer = hvd.DistributedOptimizer(optimizers.SGD(0.05), gradient_predivide_factor=2.0)
    assert_like_one_rank(optimizer)


@pytest.mark.parametrize("groups", [1, 2, 7])
def test_gradients_may_be_reduced_in_groups(groups: int) -> None:
    optimizer = hvd.DistributedOptimizer(optimizers.SGD(0.05), groups=groups)
    assert_like_one_rank(optimizer)


@pytest.mark.usefixtures("on_jax", "several_ranks")
def test_groups_are_all_submitted_before_one_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from horovod._common import arrays

    events: list[str] = []
    start, wait_for_all = arrays.core.enqueue_group, arrays.wait_for_all

    def seen(wait: Callable[[], object]) -> Callable[[], object]:
        return lambda: (events.append("wait"), wait())[1]

    monkeypatch.setattr(arrays.core, "enqueue_group", lambda *given: (events.append("start"), start(*given))[1])
    monkeypatch.setattr(arrays, "wait_for_all", lambda waits: wait_for_all(seen(wait) for wait in waits))
    model = make_model(hvd.DistributedOptimizer(optimizers.SGD(0.05), groups=2), run_eagerly=True)
    fit(model, my_rows(), ROWS)
    assert events == ["start"] * 2 + ["wait"] * len(model.trainable_weights)
    assert_equal_on_all_ranks(model.get_weights())


def test_groups_may_be_lists_of_variables() -> None:
    model = make_model(optimizers.SGD(0.05))
    first, last = model.layers
    groups = [list(last.trainable_weights), [first.kernel]]
    model.compile(optimizer=hvd.DistributedOptimizer(optimizers.SGD(0.05), groups=groups), loss="mse")
    fit(model, my_rows(STEPS), ROWS)
    np.testing.assert_allclose(flat(model.get_weights()), alone(), **CLOSE)


def test_compressed_gradients_train_almost_the_same() -> None:
    model = train(
        hvd.DistributedOptimizer(optimizers.SGD(0.05), compression=hvd.Compression.fp16), my_rows(STEPS), ROWS
    )
    assert_equal_on_all_ranks(model.get_weights())
    ours = flat(model.get_weights())
    # float16 has 11 bits; five steps of 0.05 times gradients below 8.
    np.testing.assert_allclose(ours, alone(), atol=5 * 0.05 * 8 * 2**-10)
    if hvd.size() > 1:
        assert (ours != alone()).any()


def test_a_layer_without_gradients_is_left_alone() -> None:
    inputs = keras.Input((FEATURES,))
    used = keras.layers.Dense(1, name="used")(inputs)
    unused = keras.layers.Dense(2, name="unused")(inputs)
    model = keras.Model(inputs, {"used": used, "unused": unused})
    model.compile(optimizer=hvd.DistributedOptimizer(optimizers.SGD(0.05)), loss={"used": "mse"})
    x, y = my_rows()
    weights = [np.full(v.shape, 0.5, np.float32) for v in model.get_weights()]
    model.set_weights(weights)
    model.fit(x, {"used": y}, batch_size=ROWS, verbose=0)
    assert_equal_on_all_ranks(model.get_weights())
    assert (array(model.get_layer("unused").kernel) == 0.5).all()
    assert (array(model.get_layer("used").kernel) != 0.5).any()


# Local layers


def partial(scale: bool) -> Any:
    model = make_model(optimizers.SGD(0.05))
    first, last = model.layers
    optimizer = hvd.PartialDistributedOptimizer(optimizers.SGD(0.05), local_layers=first, scale_local_gradients=scale)
    model.compile(optimizer=optimizer, loss="mse")
    before = array(first.kernel).copy()
    fit(model, my_rows(), ROWS)
    assert_equal_on_all_ranks(last.trainable_weights)
    return before, array(first.kernel)


@pytest.mark.parametrize("scale", [True, False])
def test_local_layers_keep_their_own_gradients(scale: bool) -> None:
    plain = make_model(optimizers.SGD(0.05))
    before = array(plain.layers[0].kernel).copy()
    fit(plain, my_rows(), ROWS)
    step = array(plain.layers[0].kernel) - before
    started, ended = partial(scale)
    np.testing.assert_allclose(ended - started, step / (hvd.size() if scale else 1), **CLOSE)
    if hvd.size() > 1:
        assert (array(hvd.allgather(ended[None])) != ended).any()


@pytest.mark.usefixtures("several_ranks")
def test_a_layer_that_is_not_built_yet_may_be_local() -> None:
    keras.utils.set_random_seed(3)
    layer = keras.layers.Dense(1)
    optimizer = hvd.PartialDistributedOptimizer(optimizers.SGD(0.05), local_layers=[layer])
    model = keras.Sequential([keras.layers.Dense(5), layer])
    model.compile(optimizer, loss="mse")
    model.build((None, FEATURES))
    assert_equal_on_all_ranks(model.get_weights())
    fit(model, my_rows(), ROWS)
    assert_equal_on_all_ranks(model.layers[0].trainable_weights)
    assert (array(hvd.allgather(array(layer.kernel)[None])) != array(layer.kernel)).any()


# Passes


@pytest.mark.usefixtures("on_torch")
@pytest.mark.parametrize("average", [True, False])
def test_gradients_of_several_passes_are_added_up_first(average: bool) -> None:
    rate = 0.05 if average else 0.05 / 2
    optimizer = hvd.PartialDistributedOptimizer(
        optimizers.SGD(rate), backward_passes_per_step=2, average_aggregated_gradients=average
    )
    model = make_model(optimizer)
    start = flat(model.get_weights())
    fit(model, my_rows(1), ROWS)
    assert (flat(model.get_weights()) == start).all(), "the first pass changes nothing"
    assert (model.optimizer._agg_helper.counter, int(array(model.optimizer.iterations))) == (1, 1)
    fit(model, my_rows(1), ROWS)
    assert (model.optimizer._agg_helper.counter, int(array(model.optimizer.iterations))) == (0, 2)
    assert_equal_on_all_ranks(model.get_weights())
    np.testing.assert_allclose(flat(model.get_weights()), alone(steps=1), **CLOSE)


@pytest.mark.usefixtures("on_jax")
def test_several_passes_are_refused_with_what_to_use() -> None:
    with pytest.raises(ValueError, match="gradient_accumulation_steps=2"):
        hvd.PartialDistributedOptimizer(optimizers.SGD(0.05), backward_passes_per_step=2)


# Steps of one's own


@pytest.mark.usefixtures("on_jax")
def test_a_compiled_step_of_ones_own_reduces() -> None:
    import jax

    model = make_model(None)
    optimizer = hvd.DistributedOptimizer(optimizers.SGD(0.05))
    optimizer.build(model.trainable_variables)
    x, y = my_rows()

    def loss(trainable: Any, fixed: Any) -> Any:
        predicted, _ = model.stateless_call(trainable, fixed, x)
        return ((predicted - y) ** 2).mean()

    @jax.jit
    def step(trainable: Any, fixed: Any, state: Any) -> Any:
        return optimizer.stateless_apply(state, jax.grad(loss)(trainable, fixed), trainable)

    trainable = [v.value for v in model.trainable_variables]
    fixed = [v.value for v in model.non_trainable_variables]
    trainable, _ = step(trainable, fixed, [v.value for v in optimizer.variables])
    assert_equal_on_all_ranks(trainable)
    np.testing.assert_allclose(flat(trainable), alone(steps=1), **CLOSE)


@pytest.mark.usefixtures("on_torch")
def test_a_loop_of_ones_own_reduces() -> None:
    import torch

    model = make_model(None)
    optimizer = hvd.DistributedOptimizer(optimizers.SGD(0.05))
    x, y = my_rows()
    ((model(x) - torch.as_tensor(y)) ** 2).mean().backward()
    variables = model.trainable_weights
    with torch.no_grad():
        optimizer.apply_gradients([(v.value.grad, v) for v in variables])
    assert_equal_on_all_ranks(model.get_weights())
    np.testing.assert_allclose(flat(model.get_weights()), alone(steps=1), **CLOSE)


# The wrapper itself


def test_the_class_is_called_like_the_one_it_wraps() -> None:
    plain = optimizers.Adam(0.02, beta_1=0.8)
    wrapped = hvd.DistributedOptimizer(plain)
    assert (type(wrapped).__name__, type(wrapped).__module__) == ("Adam", "horovod._keras")
    assert isinstance(wrapped, optimizers.Adam)
    assert {**wrapped.get_config(), "name": ""} == {**plain.get_config(), "name": ""}
    again = type(wrapped).from_config(wrapped.get_config())
    assert type(again) is type(wrapped)
    assert again.get_config() == wrapped.get_config()
    assert list(wrapped.variables()) == list(wrapped.variables)
