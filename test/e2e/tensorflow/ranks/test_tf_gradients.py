"""Gradients of the collectives against what they must be by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd

Run = Callable[[Any], Any]


def gradient(run: Run, given: Any, weights: Any = None) -> Any:
    """d sum(run(x) * weights) / dx, eagerly and in a function; both must agree."""

    def once() -> Any:
        variable = tf.constant(given)
        with tf.GradientTape() as tape:
            tape.watch(variable)
            result = run(variable)
            loss = tf.reduce_sum(result * (1.0 if weights is None else weights))
        return tape.gradient(loss, variable)

    eager, traced = np.asarray(once()), np.asarray(tf.function(once)())
    np.testing.assert_array_equal(eager, traced)
    return eager


@pytest.mark.parametrize("op", ["Sum", "Average"])
def test_allreduce(op: str) -> None:
    weight = float(hvd.rank() + 1)
    weights = sum(range(1, hvd.size() + 1)) / (hvd.size() if op == "Average" else 1)
    found = gradient(lambda x: hvd.allreduce(x, op=getattr(hvd, op)), np.ones([3], np.float32), weight)
    np.testing.assert_allclose(found, np.full([3], weights), rtol=1e-6)


def test_grouped_allreduce() -> None:
    found = gradient(
        lambda x: tf.add_n([tf.reduce_sum(one) for one in hvd.grouped_allreduce([x, 2.0 * x], op=hvd.Sum)]),
        np.ones([3], np.float32),
    )
    np.testing.assert_allclose(found, np.full([3], 3.0 * hvd.size()))


def test_allgather_gives_each_rank_the_gradient_of_its_rows() -> None:
    rank, size = hvd.rank(), hvd.size()
    rows = size * (size + 1) // 2
    weights = np.arange(rows, dtype=np.float32)[:, None]
    found = gradient(hvd.allgather, np.ones([rank + 1, 2], np.float32), weights)
    start = rank * (rank + 1) // 2
    np.testing.assert_allclose(found, np.repeat(weights[start : start + rank + 1], 2, axis=1))


def test_grouped_allgather() -> None:
    found = gradient(lambda x: hvd.grouped_allgather([x, x])[1], np.ones([hvd.rank() + 1], np.float32))
    np.testing.assert_allclose(found, np.ones([hvd.rank() + 1]))


@tf.custom_gradient  # type: ignore[untyped-decorator]
def with_wide_gradient(x: Any) -> Any:
    return tf.identity(x), lambda upstream: tf.cast(upstream, tf.float64)


@pytest.mark.parametrize("group", ["grouped_allreduce", "grouped_allgather", "grouped_reducescatter"])
def test_gradients_of_a_group_may_be_of_another_float_type(group: str) -> None:
    """One of the results has a gradient of float64; those of the group are of float32."""

    def run(x: Any) -> Any:
        first, second = getattr(hvd, group)([x, 2.0 * x])
        return tf.add_n([tf.reduce_sum(with_wide_gradient(first)), tf.reduce_sum(second)])

    found = gradient(run, np.ones([hvd.size(), 2], np.float32))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, np.full([hvd.size(), 2], 3.0))


def test_broadcast_has_a_gradient_at_the_root_only() -> None:
    found = gradient(lambda x: hvd.broadcast(x, 0), np.ones([2], np.float32), float(hvd.rank() + 1))
    expected = sum(range(1, hvd.size() + 1)) / hvd.size() if hvd.rank() == 0 else 0.0
    np.testing.assert_allclose(found, np.full([2], expected), rtol=1e-6)


def test_alltoall_sends_gradients_back() -> None:
    rank, size = hvd.rank(), hvd.size()
    found = gradient(lambda x: hvd.alltoall(x, splits=[1] * size)[0], np.ones([size], np.float32), float(rank + 1))
    np.testing.assert_allclose(found, np.arange(1, size + 1))


def test_alltoall_has_zeros_for_rows_that_were_not_sent() -> None:
    size = hvd.size()
    found = gradient(lambda x: hvd.alltoall(x, splits=[1] * size)[0], np.ones([size + 2, 3], np.float32))
    np.testing.assert_array_equal(found, np.repeat([[1.0] * 3, [0.0] * 3], [size, 2], axis=0))


@pytest.mark.parametrize("op", ["Sum", "Average"])
def test_reducescatter(op: str) -> None:
    rank, size = hvd.rank(), hvd.size()
    given = np.ones([size, 2], np.float32)
    found = gradient(lambda x: hvd.reducescatter(x, op=getattr(hvd, op)), given, float(rank + 1))
    expected = np.arange(1, size + 1)[:, None] * np.ones([1, 2]) * (size if op == "Sum" else 1)
    np.testing.assert_allclose(found, expected)
