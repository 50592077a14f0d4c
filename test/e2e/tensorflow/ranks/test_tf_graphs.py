"""What TensorFlow does to graphs must not change collectives: fold, merge, prune or order them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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


def nodes_that_ran(run: Callable[[], Any]) -> Counter[str]:
    """The types of Horovod's nodes in the graph of a function as it was run, after all of TensorFlow's optimisations."""
    from tensorflow.python.eager import context

    context.enable_run_metadata()
    try:
        tf.function(run)()
        graphs = context.export_run_metadata().partition_graphs
    finally:
        context.disable_run_metadata()
    nodes = [node.op for graph in graphs for node in graph.node]
    nodes += [node.op for graph in graphs for function in graph.library.function for node in function.node_def]
    assert nodes, "no graph was recorded"
    return Counter(op for op in nodes if op.startswith("Horovod"))


def test_optimisations_leave_every_op() -> None:
    """Neither folded nor pruned nor merged: constant inputs, equal ops, results that nobody uses, zero factors."""

    def run() -> Any:
        one = tf.constant([1.0, 2.0])
        for _ in range(3):
            hvd.allreduce(one, name="unused")
        for _ in range(2):
            hvd.rank_op()
            hvd.size_op()
        merged = hvd.allreduce(one, name="same") + hvd.allreduce(one, name="same")
        return 0.0 * merged, hvd.allgather(one), hvd.broadcast(one, 0), hvd.reducescatter(tf.ones([hvd.size()]))

    expected = {
        "HorovodAllreduce": 5,
        "HorovodRank": 2,
        "HorovodSize": 2,
        "HorovodAllgather": 1,
        "HorovodBroadcast": 1,
        "HorovodReducescatter": 1,
    }
    assert nodes_that_ran(run) == expected


def test_no_op_waits_for_another() -> None:
    """All run, and none has an edge from another, in the function and in a loop and a branch of it."""

    def run() -> Any:
        x = tf.ones([2])
        made = [hvd.allreduce(x, name=f"t{i}") for i in range(3)]
        made += [hvd.allgather(x), hvd.broadcast(x, 0), hvd.alltoall(tf.ones([hvd.size()])), hvd.reducescatter(tf.ones([hvd.size()]))]
        made += hvd.grouped_allreduce([x, x])
        for _ in tf.range(2):
            hvd.allreduce(x, name="loop1")
            hvd.allreduce(x, name="loop2")
        return made

    def horovods(graph: Any) -> list[Any]:
        found = [op for op in graph.get_operations() if op.type.startswith("Horovod")]
        for name in {attr.func.name for op in graph.get_operations() for attr in op.node_def.attr.values()}:
            if name and "body" in name:
                found += horovods(graph._get_function(name).graph)
        return found

    ops = horovods(tf.function(run).get_concrete_function().graph)
    assert len(ops) == 10
    assert {"loop1", "loop2"} <= {op.name.rsplit("/")[-1] for op in ops}
    for op in ops:
        assert op.control_inputs == [], op.name
        assert op in op.graph.control_outputs, op.name


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


KINDS: dict[str, Callable[[], Any]] = {
    "allreduce": lambda: hvd.allreduce(tf.fill([3], 1.0), name="a", op=hvd.Sum),
    "grouped": lambda: hvd.grouped_allreduce([tf.fill([3], 1.0)] * 2, name="g", op=hvd.Sum)[0],
    "broadcast": lambda: hvd.broadcast(tf.fill([3], float(hvd.size())), 0, name="b"),
    "allgather": lambda: tf.reduce_sum(hvd.allgather(tf.fill([1, 3], 1.0), name="c"), 0),
    "alltoall": lambda: tf.fill([3], tf.reduce_sum(hvd.alltoall(tf.ones([hvd.size()]), name="d"))),
    "reducescatter": lambda: hvd.reducescatter(tf.ones([3 * hvd.size()]), op=hvd.Sum, name="e"),
}


def in_another_order_on_each_rank(round_: int) -> list[str]:
    order = list(KINDS)
    random.Random(100 * round_ + hvd.rank()).shuffle(order)
    return order


@pytest.mark.parametrize("round_", range(3))
def test_kinds_in_any_order_in_a_function(round_: int) -> None:
    order = in_another_order_on_each_rank(round_)
    for result in tf.function(lambda: [KINDS[kind]() for kind in order])():
        same(result, np.full([3], hvd.size(), np.float32))


@pytest.mark.parametrize("round_", range(3))
def test_kinds_in_any_order_in_a_session(round_: int) -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        results = [KINDS[kind]() for kind in in_another_order_on_each_rank(round_)]
        random.Random(hvd.rank()).shuffle(results)
        for _ in range(2):
            for result in session.run(results):
                same(result, np.full([3], hvd.size(), np.float32))


def test_kinds_in_any_order_in_eager_threads() -> None:
    """One thread each: a single one runs them one by one, in the same order on all ranks."""
    with ThreadPoolExecutor(len(KINDS)) as pool:
        for round_ in range(3):
            started = [pool.submit(KINDS[kind]) for kind in in_another_order_on_each_rank(round_)]
            for one in started:
                same(one.result(60), np.full([3], hvd.size(), np.float32))


@pytest.mark.parametrize("round_", range(2))
def test_kinds_in_any_order_in_loops_and_branches(round_: int) -> None:
    order = in_another_order_on_each_rank(round_)

    def run() -> Any:
        total = tf.zeros([3])
        for _ in tf.range(3):
            if tf.reduce_sum(total) >= 0:
                for kind in order:
                    total += KINDS[kind]()
        return total

    same(tf.function(run)(), np.full([3], 3 * len(KINDS) * hvd.size(), np.float32))


def test_iterations_that_need_nothing_of_each_other() -> None:
    """The same node is never pending twice."""

    def run(count: Any) -> Any:
        results = tf.TensorArray(tf.float32, count)
        for i in tf.range(count):
            results = results.write(i, hvd.allreduce(tf.fill([2], tf.cast(i, tf.float32)), op=hvd.Sum))
        return results.stack()

    expected = np.repeat(np.arange(20, dtype=np.float32)[:, None], 2, axis=1) * hvd.size()
    same(tf.function(run)(tf.constant(20)), expected)


def test_functions_in_functions() -> None:
    """Called several times, with other shapes, two levels deep; what stands inside runs in any order."""
    order = in_another_order_on_each_rank(7)
    innermost = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum), reduce_retracing=True)

    def inner(x: Any) -> Any:
        everything = [KINDS[kind]() for kind in order]
        return tf.reduce_sum(tf.add_n(everything)) + tf.reduce_sum(innermost(x))

    middle = tf.function(inner, reduce_retracing=True)

    def run() -> Any:
        return [middle(tf.ones([n])) for n in range(1, 5)]

    for n, result in enumerate(tf.function(run)(), 1):
        assert float(result) == (3 * len(KINDS) + n) * hvd.size()


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


def test_a_function_that_uses_a_tensor_from_outside_has_the_same_names_on_all_ranks() -> None:
    for _ in range(hvd.rank()):
        tf.ones([1])  # TensorFlow numbers the tensors of a process
    given = tf.fill([3], float(hvd.rank()))
    expected = [hvd.size() * (hvd.size() - 1) / 2] * 3
    first, second = tf.function(lambda: [hvd.allreduce(given, op=hvd.Sum), hvd.allreduce(given, op=hvd.Sum)])()
    assert first.numpy().tolist() == expected
    assert second.numpy().tolist() == expected
