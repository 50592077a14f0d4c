"""Gradients of collectives are those that horovod.torch has, at once and compiled; those of training are reduced."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import optax
import pytest

import horovod.jax as hvd
from jax_world import array_of, assert_is, everybodys, mine


def weights(rank: int, shape: Any) -> Any:
    return array_of(rank, "float64", shape)


def gradient(way: Any, call: Any, x: Any) -> Any:
    """Of the sum of what `call` makes, weighted by this rank's numbers."""
    return way(jax.grad(lambda x: (call(x) * weights(hvd.rank(), call_shape(call, x))).sum()))(x)


def call_shape(call: Any, x: Any) -> Any:
    return jax.eval_shape(call, x).shape


def test_of_allreduce(way: Any) -> None:
    x = mine("float64", (4, 2))
    of_all = [weights(rank, (4, 2)) for rank in range(hvd.size())]
    total = gradient(way, lambda x: hvd.allreduce(x, op=hvd.Sum, name="a", prescale_factor=2.0), x)
    assert_is(total, 2 * sum(of_all), "float64")
    average = gradient(way, lambda x: hvd.allreduce(x, name="b"), x)
    np.testing.assert_allclose(average, sum(of_all) / hvd.size())


def test_of_a_group(way: Any) -> None:
    def loss(x: Any, y: Any) -> Any:
        x, y = hvd.grouped_allreduce([x, y], op=hvd.Sum, name="grouped")
        return (hvd.rank() + 1) * (x.sum() + 2 * y.sum())

    total = hvd.size() * (hvd.size() + 1) / 2
    of_x, of_y = way(jax.grad(loss, argnums=(0, 1)))(mine("float64"), mine("float64", (5,)))
    assert_is(of_x, np.full((4, 3), total), "float64")
    assert_is(of_y, np.full(5, 2 * total), "float64")


def test_of_what_moves_elements(way: Any) -> None:
    size, rank = hvd.size(), hvd.rank()
    shape = (2 * size, 2)
    x = mine("float64", shape)
    of_all = [weights(one, (2 * size * size, 2)) for one in range(size)]
    gathered = gradient(way, lambda x: hvd.allgather(x, name="c"), x)
    np.testing.assert_allclose(gathered, (sum(of_all) / size)[2 * size * rank : 2 * size * (rank + 1)])
    of_all = [weights(one, shape) for one in range(size)]
    sent = gradient(way, lambda x: hvd.broadcast(x, size - 1, name="d"), x)
    np.testing.assert_allclose(sent, sum(of_all) / size * (rank == size - 1))
    exchanged = gradient(way, lambda x: hvd.alltoall(x, name="e"), x)
    np.testing.assert_allclose(exchanged, np.concatenate([one[2 * rank : 2 * rank + 2] for one in of_all]))


def test_of_reducescatter(way: Any) -> None:
    size = hvd.size()
    x = mine("float64", (2 * size, 2))
    of_all = np.concatenate([weights(rank, (2, 2)) for rank in range(size)])
    total = gradient(way, lambda x: hvd.reducescatter(x, op=hvd.Sum, name="f", prescale_factor=3.0), x)
    np.testing.assert_allclose(total, 3 * size * of_all)
    np.testing.assert_allclose(gradient(way, lambda x: hvd.reducescatter(x, name="g"), x), of_all)


def test_second_derivatives_and_checkpoints(way: Any) -> None:
    def loss(x: Any) -> Any:
        return (jax.checkpoint(lambda x: hvd.allreduce(x, op=hvd.Sum, name="again"))(x) ** 3).sum()

    x = mine("float64", (2,))
    total, size = sum(everybodys("float64", (2,))), hvd.size()
    assert_is(way(jax.grad(loss))(x), 3 * size * total**2, "float64")
    second = way(jax.grad(lambda x: jax.grad(loss)(x).sum()))(x)
    assert_is(second, 6 * size**2 * total, "float64")


def test_second_derivatives_of_broadcast(way: Any) -> None:
    """All ranks reduce in the gradient of the gradient too, those that are not the root with zeros."""

    def loss(x: Any) -> Any:
        return (hvd.broadcast(x**2, 0, name="b") ** 2).sum()

    x = jax.numpy.asarray([1.0, 2.0])
    first, second = way(jax.grad(loss))(x), way(jax.grad(lambda x: jax.grad(loss)(x).sum()))(x)
    is_root = hvd.rank() == 0
    np.testing.assert_allclose(first, 4 * x**3 * is_root, rtol=1e-6)
    np.testing.assert_allclose(second, (4 + 8 / hvd.size()) * x**2 * is_root, rtol=1e-6)


def test_integers_have_no_gradient_and_do_not_disturb(way: Any) -> None:
    def loss(x: Any) -> Any:
        x, count = hvd.grouped_allreduce([x, jax.numpy.int32(x[0] > 0)], op=hvd.Sum, name="mixed")
        return x.sum(), hvd.allreduce(count, op=hvd.Sum, name="count")

    gradient, count = way(jax.grad(loss, has_aux=True))(mine("float64", (3,)))
    assert_is(gradient, np.full(3, hvd.size()), "float64")
    assert int(count) == hvd.size() ** 2


def test_of_uneven_rows_at_once() -> None:
    rows = hvd.rank() + 1
    first = sum(range(rows))
    numbers = np.arange(sum(range(hvd.size() + 1)), dtype=np.float64)
    made = jax.grad(lambda x: (hvd.allgather(x, name="uneven") * numbers).sum())(jax.numpy.ones(rows))
    assert_is(made, numbers[first : first + rows], "float64")
    rows = 2 * hvd.size() + 1
    scattered = jax.grad(lambda x: hvd.reducescatter(x, op=hvd.Sum, name="left").sum())
    assert_is(scattered(jax.numpy.ones(rows)), np.full(rows, hvd.size()), "float64")
    if hvd.size() > 1:
        with pytest.raises(ValueError, match="its gradient needs rows that"):
            jax.jit(scattered)(jax.numpy.ones(rows))


def test_gradients_of_a_tree(way: Any) -> None:
    tree = {"dense": {"kernel": mine(), "bias": mine("float32", (3,))}, "none": None, "list": [mine("float16", (2,))]}
    for options in ({}, {"groups": 2}, {"groups": 1, "name": "other"}):
        made = way(lambda tree, options=options: hvd.allreduce_gradients(tree, op=hvd.Sum, **options))(tree)
        assert_is(made["dense"]["kernel"], sum(everybodys()))
        assert_is(made["dense"]["bias"], sum(everybodys("float32", (3,))))
        assert_is(made["list"][0], sum(everybodys("float16", (2,))), "float16")
        assert made["none"] is None
    averages = way(lambda tree: hvd.allreduce_gradients(tree, gradient_predivide_factor=2.0))(tree)
    np.testing.assert_allclose(averages["dense"]["kernel"], sum(everybodys()) / hvd.size(), rtol=1e-6)
    assert hvd.allreduce_gradients({}) == {}


def rows_of(rank: int) -> tuple[Any, Any]:
    generator = np.random.default_rng(rank)
    x = generator.normal(size=(8, 5))
    return x, x.sum(axis=1) + rank


def loss_of(params: Any, rows: Any) -> Any:
    x, y = rows
    hidden = jax.numpy.tanh(x @ params["w"] + params["b"])
    return ((hidden @ params["v"] - y) ** 2).mean()


def train(optimizer: Any, rows: Any, way: Any) -> Any:
    key = jax.random.key(3)
    params = {
        "w": jax.random.normal(key, (5, 4), "float64"),
        "b": jax.numpy.zeros(4),
        "v": jax.random.normal(key, (4,), "float64"),
    }
    state = optimizer.init(params)

    @way
    def step(params: Any, state: Any) -> Any:
        updates, state = optimizer.update(jax.grad(loss_of)(params, rows), state, params)
        return optax.apply_updates(params, updates), state

    for _ in range(10):
        params, state = step(params, state)
    return params


def everything() -> Any:
    return [np.concatenate(parts) for parts in zip(*map(rows_of, range(hvd.size())), strict=True)]


def assert_close(distributed: Any, alone: Any) -> None:
    for name, value in alone.items():
        np.testing.assert_allclose(distributed[name], value, rtol=1e-10, atol=1e-12)


def test_accumulated_gradients_are_reduced_once(way: Any) -> None:
    double = {"every_k_schedule": 2, "accumulator_dtype": "float64"}
    distributed = optax.MultiSteps(hvd.DistributedOptimizer(optax.sgd(0.1)), **double)
    alone = optax.MultiSteps(optax.sgd(0.1), **double)
    assert_close(train(distributed, rows_of(hvd.rank()), way), train(alone, everything(), jax.jit))


@pytest.mark.parametrize("groups", [None, 2])
@pytest.mark.parametrize("inner", [optax.adamw(0.01), optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1, 0.9))])
def test_training_on_ranks_equals_one_process_with_all_rows(way: Any, inner: Any, groups: int | None) -> None:
    distributed = train(hvd.DistributedOptimizer(inner, groups=groups), rows_of(hvd.rank()), way)
    assert_close(distributed, train(inner, everything(), jax.jit))
