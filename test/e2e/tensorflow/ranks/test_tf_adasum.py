"""Adasum for tapes and for TF1 optimizers: equal ways are averaged, orthogonal ones are added."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd
from tf_world import same

v1 = tf.compat.v1


@pytest.fixture
def graph() -> Iterator[Any]:
    """A TF1 graph, and a session to run it."""
    with tf.Graph().as_default(), v1.Session() as made:
        yield made


def gradient_of(variable: Any, kind: str) -> Any:
    """The loss whose gradient is the same on all ranks, or orthogonal to those of the others."""
    if kind == "equal":
        return tf.reduce_sum(variable)
    return variable[hvd.rank()]


@pytest.mark.parametrize("kind", ["equal", "orthogonal"])
@pytest.mark.parametrize("passes", [1, 2, 3])
@pytest.mark.parametrize("resource", [True, False])
def test_ranks_meet_after_each_kth_step(graph: Any, kind: str, passes: int, resource: bool) -> None:
    start = np.arange(hvd.size(), dtype=np.float32)
    variable = v1.get_variable("x", initializer=tf.constant(start), use_resource=resource)
    optimizer = hvd.DistributedOptimizer(
        v1.train.GradientDescentOptimizer(0.5), op=hvd.Adasum, backward_passes_per_step=passes
    )
    assert optimizer.get_name() == "DistributedDeltaGradientDescentOptimizer"
    step = v1.train.get_or_create_global_step()
    train = optimizer.minimize(gradient_of(variable, kind), global_step=step)
    slot = optimizer.get_slot(variable, "delta_start")
    graph.run(v1.global_variables_initializer())
    own = np.ones(hvd.size(), np.float32) if kind == "equal" else np.eye(hvd.size(), dtype=np.float32)[hvd.rank()]
    for number in range(1, 2 * passes + 1):
        graph.run(train)
        met = number // passes * passes  # steps that all ranks have taken together
        meeting = start - 0.5 * met
        np.testing.assert_allclose(graph.run(slot), meeting, rtol=1e-6)
        np.testing.assert_allclose(graph.run(variable), meeting - 0.5 * (number - met) * own, rtol=1e-6)
    assert graph.run(step) == 2 * passes


def test_slots_of_the_wrapped_optimizer_stay_its_own(graph: Any) -> None:
    first = v1.get_variable("a", initializer=tf.ones([3]))
    second = v1.get_variable("b", initializer=tf.ones([2, 2]))
    v1.get_variable("unused", initializer=tf.ones([1]))
    optimizer = hvd.DistributedOptimizer(v1.train.MomentumOptimizer(0.1, 0.9), op=hvd.Adasum, name="mine")
    assert optimizer.get_name() == "mine"
    train = optimizer.minimize(tf.reduce_sum(first) + tf.reduce_sum(tf.gather(second, [0])))
    assert optimizer.get_slot_names() == ["momentum", "delta_start"]
    graph.run([v1.global_variables_initializer()])
    graph.run(hvd.broadcast_global_variables(0))
    graph.run(train)
    np.testing.assert_allclose(graph.run(optimizer.get_slot(first, "momentum")), np.ones([3]))
    np.testing.assert_allclose(graph.run(first), np.full([3], 0.9), rtol=1e-6)
    np.testing.assert_allclose(graph.run(second), [[0.9, 0.9], [1, 1]], rtol=1e-6)
    assert optimizer.get_slot(second, "delta_start") in optimizer.variables()


def test_ranks_that_start_apart_end_together(graph: Any) -> None:
    """The broadcast reaches delta_start too: without that each rank would go on from a place of its own."""
    variable = v1.get_variable("x", initializer=tf.fill([4], float(hvd.rank())))
    optimizer = hvd.DistributedOptimizer(v1.train.AdamOptimizer(0.1), op=hvd.Adasum, backward_passes_per_step=2)
    target = tf.constant(np.random.default_rng(hvd.rank()).normal(size=4).astype(np.float32))
    train = optimizer.minimize(tf.reduce_sum(tf.square(variable - target)))
    graph.run(v1.global_variables_initializer())
    graph.run(hvd.broadcast_global_variables(0))
    for _ in range(6):
        graph.run(train)
    everybodys = graph.run(hvd.allgather(variable.read_value()[None]))
    assert (everybodys == everybodys[0]).all()
    assert (np.abs(everybodys[0]) > 0.01).any()


def test_what_does_not_go_together(graph: Any) -> None:
    sgd = v1.train.GradientDescentOptimizer(0.1)
    with pytest.raises(NotImplementedError, match="global"):
        hvd.DistributedOptimizer(sgd, op=hvd.Adasum, process_set=hvd.ProcessSet([0]))
    with pytest.raises(ValueError, match="average_aggregated_gradients"):
        hvd.DistributedOptimizer(sgd, op=hvd.Adasum, average_aggregated_gradients=True)
    with pytest.raises(ValueError, match="backward_passes_per_step"):
        hvd.DistributedOptimizer(sgd, op=hvd.Adasum, backward_passes_per_step=0)
    with pytest.raises(ValueError, match="predivide"):
        hvd.DistributedOptimizer(sgd, op=hvd.Adasum, gradient_predivide_factor=2.0)
    with pytest.raises(ValueError, match="Adasum"):
        hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1), op=hvd.Adasum)


@pytest.mark.parametrize("traced", [False, True])
def test_tapes(traced: bool) -> None:
    variable = tf.Variable(np.ones(hvd.size(), np.float32))

    def step(kind: str) -> Any:
        with tf.GradientTape() as tape:
            loss = gradient_of(variable, kind)
        return hvd.DistributedGradientTape(tape, op=hvd.Adasum, sparse_as_dense=True).gradient(loss, [variable])[0]

    run = tf.function(step) if traced else step
    for kind in ("equal", "orthogonal"):
        np.testing.assert_allclose(run(kind), np.ones(hvd.size()), rtol=1e-6)


@pytest.mark.usefixtures("several_ranks")
def test_sparse_gradients_have_to_become_dense() -> None:
    table = tf.Variable(tf.ones([hvd.size(), 2]))

    def grad(**options: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, [hvd.rank()]))
        return hvd.DistributedGradientTape(tape, op=hvd.Adasum, **options).gradient(loss, [table])[0]

    with pytest.raises(NotImplementedError, match="sparse"):
        grad()
    np.testing.assert_allclose(grad(sparse_as_dense=True), np.ones([hvd.size(), 2]), rtol=1e-6)
    same(hvd.allreduce(tf.ones([1]), op=hvd.Sum), np.full([1], hvd.size(), np.float32))
