"""How a step that JAX has compiled reduces gradients: by a custom call of XLA, or where that cannot be, by a callback."""

from __future__ import annotations

import re
from typing import Any

import keras
import numpy as np
import pytest

import horovod.keras as hvd
from horovod.common.exceptions import HorovodInternalError
from keras_world import (
    ROWS,
    array,
    assert_equal_on_all_ranks,
    assert_usable,
    fit,
    make_model,
    my_rows,
)

pytestmark = pytest.mark.usefixtures("on_jax", "several_ranks")
TARGET = "@horovod_jax_collective"


@pytest.fixture(params=["custom call", "callback"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways, on the CPU."""
    from horovod.jax import _call

    if request.param == "callback":
        monkeypatch.setattr(_call, "problem", lambda: "asked for by a test")
    return str(request.param)


def constants(count: int = 3) -> tuple[Any, Any]:
    """A variable, and an optimizer with rate 1 whose state is built for it."""
    import jax

    variable = keras.Variable(jax.numpy.zeros(count))
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), op=hvd.Sum)
    optimizer.build([variable])
    return variable, optimizer


def state_of(optimizer: Any) -> list[Any]:
    return [variable.value for variable in optimizer.variables]


def sum_of_ranks() -> int:
    """Of rank + 1."""
    return hvd.size() * (hvd.size() + 1) // 2


def test_a_program_has_the_call_that_was_chosen(way: str) -> None:
    import jax

    variable, optimizer = constants()
    step = jax.jit(lambda grads: optimizer.stateless_apply(state_of(optimizer), grads, [variable.value]))
    text = step.lower([jax.numpy.ones(3)]).as_text()
    assert text.count(TARGET) == (1 if way == "custom call" else 0)
    assert ("callback" in text) == (way == "callback")


@pytest.mark.parametrize("groups", [None, 1, 3])
def test_both_ways_train_alike(way: str, groups: int | None) -> None:
    options = [{"groups": groups}, {"groups": groups, "compression": hvd.Compression.fp16}]
    for each in options:
        model = make_model(hvd.DistributedOptimizer(keras.optimizers.SGD(0.05), **each))
        eager = make_model(hvd.DistributedOptimizer(keras.optimizers.SGD(0.05), **each), run_eagerly=True)
        for one in (model, eager):
            fit(one, my_rows(4), ROWS)
            assert_equal_on_all_ranks(one.get_weights())
        for compiled, expected in zip(model.get_weights(), eager.get_weights(), strict=True):
            np.testing.assert_allclose(compiled, expected, rtol=1e-3, atol=1e-4)


def test_calls_of_one_optimizer_follow_one_another(way: str) -> None:
    """Their gradients do not depend on each other, so that only the order of the calls keeps their names apart."""
    import jax

    variable, optimizer = constants()

    @jax.jit
    def steps(state: Any, value: Any, gradient: Any) -> Any:
        def step(i: Any, carried: Any) -> Any:
            given, state = carried
            (given,), state = optimizer.stateless_apply(state, [gradient * (i + 1)], [given])
            return given, state

        def once_more(carried: Any) -> Any:
            return step(9, carried)

        carried = jax.lax.fori_loop(0, 4, step, (value, state))
        carried = step(4, step(5, carried))
        return jax.lax.cond(gradient[0] > 0, once_more, lambda unchanged: unchanged, carried)

    state = state_of(optimizer)
    for _ in range(10):
        value, _ = steps(state, variable.value, jax.numpy.full(3, hvd.rank() + 1.0))
    assert array(value).tolist() == [-(1 + 2 + 3 + 4 + 5 + 6 + 10) * sum_of_ranks()] * 3


def test_two_optimizers_in_one_program_do_not_wait_for_each_other(way: str) -> None:
    import jax

    first, one = constants(2)
    second, other = constants(70_000)
    other._name = "Other"

    @jax.jit
    def step(gradient: Any, large: Any) -> Any:
        (reduced,), _ = one.stateless_apply(state_of(one), [gradient], [first.value])
        (both,), _ = other.stateless_apply(state_of(other), [large], [second.value])
        return reduced, both

    for turn in range(1, 20):
        gradient = jax.numpy.full(2, float(turn * (hvd.rank() + 1)))
        reduced, both = step(gradient, jax.numpy.full(70_000, gradient[0]))
        assert array(reduced).tolist() == [-turn * sum_of_ranks()] * 2
        assert set(array(both)) == {-turn * sum_of_ranks()}


def test_what_ranks_disagree_on_is_raised_by_fit_and_training_goes_on(way: str) -> None:
    layers = keras.layers
    features = hvd.rank() + 2
    model = keras.Sequential([layers.Input((features,)), layers.Dense(1)])
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.05)), loss="mse")
    rows = np.ones((ROWS, features), np.float32)
    with pytest.raises(HorovodInternalError, match="Mismatched tensor shapes"):
        fit(model, (rows, rows[:, :1]), ROWS)
    assert_usable()
    model = make_model(hvd.DistributedOptimizer(keras.optimizers.SGD(0.05)))
    fit(model, my_rows(2), ROWS)
    assert_equal_on_all_ranks(model.get_weights())


def test_a_compiled_step_of_ones_own_raises_jaxs_error_with_the_cause(way: str) -> None:
    import jax

    variable, optimizer = constants(hvd.rank() + 1)
    step = jax.jit(lambda grads: optimizer.stateless_apply(state_of(optimizer), grads, [variable.value]))
    with pytest.raises(jax.errors.JaxRuntimeError, match="Mismatched tensor shapes"):
        jax.block_until_ready(step([jax.numpy.ones(hvd.rank() + 1)]))
    with pytest.raises(HorovodInternalError, match="Mismatched tensor shapes"):
        optimizer.finalize_variable_values([])
    optimizer.finalize_variable_values([])  # told once
    variable, optimizer = constants()
    again = jax.jit(lambda grads: optimizer.stateless_apply(state_of(optimizer), grads, [variable.value]))
    (reduced,), _ = again([jax.numpy.ones(3)])
    assert array(reduced).tolist() == [-hvd.size()] * 3


def test_calls_of_a_program_are_chained_by_jaxs_token() -> None:
    """XLA may happen to run independent calls in the same order everywhere; what makes it so is in the program."""
    import jax

    (first, one), (second, other) = constants(2), constants(3)

    @jax.jit
    def step(gradient: Any, another: Any) -> Any:
        (reduced,), _ = one.stateless_apply(state_of(one), [gradient], [first.value])
        (also,), _ = other.stateless_apply(state_of(other), [another], [second.value])
        return reduced, also

    text = step.lower(jax.numpy.ones(2), jax.numpy.ones(3)).as_text()
    calls = re.findall(rf"(%\w+):2 = stablehlo.custom_call {TARGET}\(%\w+, (%[\w#]+)\)", text)
    assert [token for _, token in calls] == ["%arg0", f"{calls[0][0]}#1"]


def test_types_that_cannot_be_reduced_are_refused_when_the_step_is_traced() -> None:
    import jax

    variable, optimizer = constants()
    reduce = optimizer.__dict__["_hvd_reduce"]
    with pytest.raises(ValueError, match="type uint32 is not supported"):
        jax.jit(lambda grad: reduce([grad], [variable]))(jax.numpy.ones(3, "uint32"))
    assert_usable()


def test_a_name_of_several_lines_is_refused() -> None:
    import jax

    variable, optimizer = constants()
    reduce = optimizer.__dict__["_hvd_reduce"]
    reduce.name = "two\nlines"
    with pytest.raises(ValueError, match="without line breaks"):
        jax.jit(lambda grad: reduce([grad], [variable]))(jax.numpy.ones(3))
    assert_usable()


@pytest.mark.parametrize("lack", [ImportError("no module of that name"), TypeError("no parameter of that name")])
def test_a_jax_without_what_the_call_needs_calls_back(lack: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    from horovod.jax import _call

    def of_an_older_jax() -> Any:
        raise lack

    monkeypatch.setattr(_call, "_declared", of_an_older_jax)
    _call.problem.cache_clear()
    try:
        assert "of that name" in str(_call.problem())
        model = make_model(hvd.DistributedOptimizer(keras.optimizers.SGD(0.05)))
        fit(model, my_rows(2), ROWS)
        assert_equal_on_all_ranks(model.get_weights())
    finally:
        _call.problem.cache_clear()
