"""Under jax.vmap a collective is that of each example, at once and compiled, and one call for the whole batch."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import optax
import pytest

import horovod.jax as hvd
from jax_world import array_of, assert_is, assert_usable, mine
from numpy_collectives import KINDS, LINEAR, call_of, gradient_of, of_examples, result_of


def batches(shape: tuple[int, ...]) -> list[Any]:
    return [array_of(rank, "float64", shape) for rank in range(hvd.size())]


def shape_with(axis: int) -> tuple[int, ...]:
    """Of a batch of two matrices whose rows can be shared equally."""
    shape = [2 * hvd.size(), 3]
    shape.insert(axis, 2)
    return tuple(shape)


@pytest.mark.parametrize("kind", KINDS)
def test_examples_along_any_axis(way: Any, kind: str) -> None:
    for axis in (0, 1, 2) if kind in LINEAR else (1,):
        shape = shape_with(axis)
        call = way(jax.vmap(call_of(kind, f"vmap.{axis}"), in_axes=axis))
        assert_is(call(mine("float64", shape)), of_examples(result_of, kind, batches(shape), axis), "float64")


@pytest.mark.parametrize("kind", LINEAR)
def test_batches_of_batches(way: Any, kind: str) -> None:
    """The inner examples along the last axis, the outer ones along the first."""
    shape = (2, 2 * hvd.size(), 3, 2)
    call = way(jax.vmap(jax.vmap(call_of(kind, "nested"), in_axes=2, out_axes=1), in_axes=0))
    made = call(mine("float64", shape))
    expected = [
        np.moveaxis(of_examples(result_of, kind, [batch[i] for batch in batches(shape)], 2), 0, 1) for i in range(2)
    ]
    assert_is(made, np.stack(expected), "float64")


@pytest.mark.parametrize("kind", LINEAR)
def test_gradients_of_batches(way: Any, kind: str) -> None:
    """Of each example, and of the whole batch, which are the same: examples do not meet."""
    shape = shape_with(0)
    call = call_of(kind, "of_batch")
    result = jax.eval_shape(jax.vmap(call), mine("float64", shape)).shape
    weights = batches(result)
    expected = of_examples(gradient_of, kind, weights, 0)
    own = jax.numpy.asarray(weights[hvd.rank()])
    of_each = jax.vmap(lambda x, w: jax.vjp(call, x)[1](w)[0])
    np.testing.assert_allclose(way(of_each)(mine("float64", shape), own), expected)
    of_all = lambda x, w: jax.vjp(jax.vmap(call), x)[1](w)[0]  # noqa: E731
    np.testing.assert_allclose(way(of_all)(mine("float64", shape), own), expected)


def test_what_has_no_batch_is_the_same_for_all_examples(way: Any) -> None:
    outside = mine("float64", (2,))

    def call(x: Any, y: Any) -> Any:
        first, second = hvd.grouped_allreduce([x, y], op=hvd.Sum, name="some")
        return first, second, x + hvd.allreduce(outside, op=hvd.Sum, name="outside")

    first, second, third = way(jax.vmap(call, in_axes=(1, None), out_axes=(1, None, 1)))(
        mine("float64", (2, 3)), mine("float64", (5,))
    )
    assert_is(first, sum(batches((2, 3))), "float64")
    assert_is(second, sum(batches((5,))), "float64")
    assert_is(third, array_of(hvd.rank(), "float64", (2, 3)) + sum(batches((2,)))[:, None], "float64")


def test_groups_of_rows(way: Any) -> None:
    rows = 2 * hvd.size()

    def call(x: Any, y: Any) -> Any:
        return hvd.grouped_allgather([x, y], name="rows"), hvd.grouped_reducescatter([x, y], op=hvd.Sum, name="shares")

    gathered, shares = way(jax.vmap(call, in_axes=(0, None)))(mine("float64", (2, rows, 3)), mine("float64", (rows,)))
    for made, kind in ((gathered, "allgather"), (shares, "reducescatter")):
        assert_is(made[0], of_examples(result_of, kind, batches((2, rows, 3)), 0), "float64")
        assert_is(made[1], np.stack([result_of(kind, batches((rows,)))] * 2), "float64")


def adasum_of(arrays: list[Any]) -> Any:
    """Of two ranks, as docs/design/adasum.md defines it."""
    a, b = arrays
    dot = (a * b).sum()
    return a * (1 - dot / (2 * (a * a).sum())) + b * (1 - dot / (2 * (b * b).sum()))


def test_adasum_is_that_of_each_example(way: Any) -> None:
    """It depends on all elements of an array, so that of a batch would be another."""
    for axis in (0, 1):
        call = way(jax.vmap(lambda x: hvd.allreduce(x, op=hvd.Adasum, name="adasum"), in_axes=axis))
        made = call(mine("float64", (2, 2)))
        alone = [hvd.allreduce(mine("float64", (2, 2)).take(i, axis), op=hvd.Adasum) for i in range(2)]
        np.testing.assert_allclose(made, np.stack(alone))
        if hvd.size() == 2:
            expected = [adasum_of([batch.take(i, axis) for batch in batches((2, 2))]) for i in range(2)]
            np.testing.assert_allclose(made, expected)
    grouped = way(
        jax.vmap(lambda x, y: hvd.grouped_allreduce([x, y], op=hvd.Adasum, name="together"), in_axes=(0, None))
    )
    first, second = grouped(mine("float64", (2, 3)), mine("float64", (4,)))
    np.testing.assert_allclose(first[1], hvd.allreduce(mine("float64", (2, 3))[1], op=hvd.Adasum))
    np.testing.assert_allclose(second[0], hvd.allreduce(mine("float64", (4,)), op=hvd.Adasum))
    assert way(jax.vmap(lambda x: hvd.allreduce(x, op=hvd.Adasum, name="none")))(np.ones((0, 3))).shape == (0, 3)


def test_one_call_for_the_batch() -> None:
    for call in (hvd.allreduce, hvd.allgather, lambda x: hvd.allreduce(x, op=hvd.Adasum)):
        text = jax.jit(jax.vmap(call)).lower(np.ones((4, 2))).as_text()
        assert text.count("custom_call @horovod_jax_collective") == 1
    hvd.barrier()


def test_rows_that_cannot_be_shared_equally(way: Any) -> None:
    shape = (2, 2 * hvd.size() + 1, 3)
    made = way(jax.vmap(call_of("reducescatter", "left")))(mine("float64", shape))
    assert_is(made, of_examples(result_of, "reducescatter", batches(shape), 0), "float64")


def test_uneven_rows_at_once() -> None:
    shapes = [(2, rank + 1, 3) for rank in range(hvd.size())]
    arrays = [array_of(rank, "float64", shape) for rank, shape in enumerate(shapes)]
    made = jax.vmap(lambda x: hvd.allgather(x, name="uneven"))(jax.numpy.asarray(arrays[hvd.rank()]))
    assert_is(made, of_examples(result_of, "allgather", arrays, 0), "float64")


def test_conditions_and_loops_of_examples() -> None:
    """What differs between examples chooses between results: all of them take part in each call."""

    def call(x: Any) -> Any:
        x = jax.lax.scan(lambda x, _: (hvd.allreduce(x, name="looped"), None), x, None, length=2)[0]
        return jax.lax.cond(x[0] > 2, lambda x: hvd.allreduce(2 * x, name="chosen"), lambda x: x, x)

    average = np.mean(batches((3, 2)), axis=0)
    expected = np.where(average[:, :1] > 2, 2 * average, average)
    np.testing.assert_allclose(jax.jit(jax.vmap(call))(mine("float64", (3, 2))), expected)


def test_models_side_by_side_train_as_one_by_one() -> None:
    optimizer = hvd.DistributedOptimizer(optax.sgd(0.01, 0.9))
    x = mine("float64", (4, 3))
    starts = jax.numpy.asarray(array_of(0, "float64", (2, 3)) / 7)

    def train(optimizer: Any, start: Any, x: Any) -> Any:
        state = optimizer.init(start)
        for _ in range(3):
            gradient = jax.grad(lambda w: ((x @ w - 1) ** 2).mean())(start)
            updates, state = optimizer.update(gradient, state)
            start = optax.apply_updates(start, updates)
        return start

    made = jax.jit(jax.vmap(lambda start: train(optimizer, start, x)))(starts)
    rows = np.concatenate(batches((4, 3)))
    alone = jax.jit(lambda start: train(optax.sgd(0.01, 0.9), start, rows))
    np.testing.assert_allclose(made, np.stack([alone(start) for start in starts]), rtol=1e-9)


def test_what_has_no_meaning_for_a_batch_is_refused(way: Any) -> None:
    for call in (hvd.allgather, hvd.reducescatter, hvd.alltoall):
        with pytest.raises(ValueError, match="without dimensions"):
            way(jax.vmap(call))(mine("float64", (2,)))
    with pytest.raises(ValueError, match=r"hvd\.alltoall\(\): splits cannot be used .* under jax\.vmap"):
        way(jax.vmap(lambda x: hvd.alltoall(x, splits=[1] * hvd.size())))(mine("float64", shape_with(0)))
    with pytest.raises(ValueError, match=r"hvd\.alltoall\(\): splits must be numbers"):
        way(jax.vmap(lambda splits: hvd.alltoall(mine(), splits=splits)))(np.ones((2, hvd.size()), "int32"))
    assert_usable()
