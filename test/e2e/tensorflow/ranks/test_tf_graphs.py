"""What TensorFlow does to graphs must not change collectives: fold, merge, prune or order them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd
from tf_world import same


def test_constant_inputs_are_not_folded() -> None:
    function = tf.function(lambda: hvd.allreduce(tf.constant(1.0), op=hvd.Sum))
    for _ in range(3):
        assert float(function()) == hvd.size()
    hvd.shutdown()
    with pytest.raises(tf.errors.UnknownError):  # a folded one would still know the sum
        function()


def test_an_op_whose_result_is_not_used_runs() -> None:
    def run() -> Any:
        hvd.allreduce(tf.constant(1.0))
        return tf.constant(2.0)

    function = tf.function(run)
    assert float(function()) == 2.0
    hvd.shutdown()
    with pytest.raises(tf.errors.UnknownError):  # a pruned one would not notice
        function()


@pytest.mark.usefixtures("several_ranks")
def test_equal_ops_are_not_merged() -> None:
    """Rank 0 has both in one function: merged, one of them would never meet the other ranks'."""

    def run(*names: str) -> Any:
        return tf.function(lambda: [hvd.allreduce(tf.constant(1.0), name=name, op=hvd.Sum) for name in names])()

    results = run("x", "y") if hvd.rank() == 0 else [*run("x"), *run("y")]
    assert [float(one) for one in results] == [hvd.size()] * 2


@pytest.mark.usefixtures("several_ranks")
def test_ranks_may_trace_in_another_order() -> None:
    """Chained ops would wait for each other across ranks for ever."""
    order = list(range(50))
    random.Random(hvd.rank()).shuffle(order)

    def run() -> Any:
        made = {i: hvd.allreduce(tf.fill([3], float(i)), name=f"t{i}", op=hvd.Sum) for i in order}
        return [made[i] for i in range(len(order))]

    for _ in range(3):
        for i, result in enumerate(tf.function(run)()):
            same(result, np.full([3], i * hvd.size(), np.float32))


def test_many_are_pending_at_once_on_few_threads() -> None:
    results = tf.function(lambda: [hvd.allreduce(tf.fill([10], float(i)), op=hvd.Sum) for i in range(300)])()
    for i, result in enumerate(results):
        same(result, np.full([10], i * hvd.size(), np.float32))


def test_loops_and_nested_functions() -> None:
    inner = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum))

    def run(x: Any) -> Any:
        for _ in tf.range(4):
            x = inner(x) / tf.cast(hvd.size_op(), tf.float32)
        return inner(x) + inner(2.0 * x)

    same(tf.function(run)(tf.constant([1.0])), np.array([3.0 * hvd.size()], np.float32))


def test_a_relaxed_shape_needs_no_new_trace() -> None:
    traces = []

    def run(x: Any) -> Any:
        traces.append(1)
        return hvd.allgather(x)

    function = tf.function(run, reduce_retracing=True)
    for rows in range(1, 6):
        assert function(tf.ones([rows, 2])).shape == (rows * hvd.size(), 2)
    assert len(traces) <= 2


def test_a_graph_that_was_built_before_a_restart_sees_the_new_session() -> None:
    function = tf.function(lambda x: (hvd.allreduce(x, op=hvd.Sum), hvd.size_op()))
    function(tf.ones([2]))
    hvd.shutdown()
    with pytest.raises(tf.errors.UnknownError, match="shut down"):
        function(tf.ones([2]))
    hvd.init()
    total, size = function(tf.ones([2]))
    assert int(size) == hvd.size()
    same(total, np.full([2], hvd.size(), np.float32))


def test_inputs_outlive_their_names() -> None:
    """The kernel holds the memory, not Python."""

    def run() -> Any:
        return hvd.allreduce(tf.random.stateless_uniform([1000], [1, 2]), op=hvd.Sum)

    first = tf.function(run)().numpy()
    for _ in range(20):
        same(tf.function(run)(), first)


def test_xla_is_refused_with_what_to_set() -> None:
    with pytest.raises(RuntimeError, match="jit_compile=False"):
        tf.function(lambda x: hvd.allreduce(x), jit_compile=True)(tf.ones([2]))  # noqa: PLW0108


def test_a_callback_keeps_keras_from_compiling() -> None:
    import horovod.tensorflow.keras as hvd_tfk

    model = tf.keras.Sequential([tf.keras.layers.Input((2,)), tf.keras.layers.Dense(1)])
    optimizer = hvd_tfk.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))
    model.compile(optimizer, loss="mse", jit_compile=True)
    callback = hvd_tfk.callbacks.BroadcastGlobalVariablesCallback(0)
    model.fit(np.ones([4, 2]), np.ones([4, 1]), verbose=0, callbacks=[callback])
    assert callback.broadcast_done
