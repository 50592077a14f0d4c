"""Collectives in functions that XLA compiles: values, order, and what cannot be compiled."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd
from horovod.tensorflow import _xla_support
from tf_world import MOVABLE, REDUCIBLE, SCATTERABLE, agree, array, assert_usable, compiled, mine, of_all, same, total

SHAPES = ((6, 4), (6,), (), (0, 3))

needs_xla = pytest.mark.usefixtures("xla")


def calls(function: Any, *arguments: Any) -> int:
    """How many custom calls the graph of the function has, without inner functions."""
    graph = function.get_concrete_function(*arguments).graph
    return sum(op.type == "XlaCallModule" for op in graph.get_operations())


@needs_xla
@pytest.mark.parametrize("op", ["Sum", "Average", "Min", "Max", "Product"])
def test_allreduce_of_every_type(op: str) -> None:
    inputs = [mine(shape, dtype) for dtype in REDUCIBLE for shape in SHAPES]
    results = agree(lambda *given: [hvd.allreduce(x, op=getattr(hvd, op)) for x in given], *inputs)
    if op == "Sum":
        expected = [total(of_all(shape, dtype)) for dtype in REDUCIBLE for shape in SHAPES]
        for result, one in zip(results, expected, strict=True):
            same(result, one)


@needs_xla
def test_factors_and_adasum() -> None:
    def run(x: Any) -> Any:
        scaled = hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.1, postscale_factor=3.0)
        is_power = hvd.size() & (hvd.size() - 1) == 0
        return [scaled, hvd.allreduce(x, op=hvd.Adasum)] if is_power else [scaled]

    agree(run, mine((17,), tf.float32))


@needs_xla
def test_the_others_of_every_type() -> None:
    def run(*given: Any) -> Any:
        results: list[Any] = []
        for x in given:
            results += [hvd.allgather(x), hvd.broadcast(x, hvd.size() - 1), hvd.alltoall(x)]
            if x.dtype in SCATTERABLE:
                results += [hvd.reducescatter(x, op=hvd.Sum), hvd.reducescatter(x[:5])]
        return results

    agree(run, *[mine((6, 4), dtype) for dtype in MOVABLE])


@needs_xla
def test_groups_of_fifty() -> None:
    inputs = [mine((i % 7, 3), tf.float32, str(i)) for i in range(50)]

    def run(*given: Any) -> Any:
        return hvd.grouped_allreduce(given), hvd.grouped_allgather(given), hvd.grouped_reducescatter(given)

    reduced, gathered, _ = agree(run, *inputs)
    for i in range(50):
        same(gathered[i], np.concatenate([array(x) for x in of_all((i % 7, 3), tf.float32, str(i))]))
        assert reduced[i].shape == (i % 7, 3)
    assert calls(compiled(run), *inputs) == 3


@needs_xla
def test_buffers_are_laid_out_in_rows() -> None:
    """XLA would hand a transposed matrix on as it lies there."""
    given = mine((5, 3), tf.float32)
    expected = total(of_all((5, 3), tf.float32))
    same(compiled(lambda x: hvd.allreduce(tf.transpose(x), op=hvd.Sum))(given), expected.T)
    same(compiled(lambda x: tf.transpose(hvd.allreduce(x, op=hvd.Sum)) @ tf.eye(5))(given), expected.T)


@needs_xla
def test_independent_calls_never_wait_for_each_other() -> None:
    """XLA may start them in any order; where two ranks meet in opposite ones, both hang."""
    function = compiled(lambda x: [hvd.allreduce(x * i, op=hvd.Sum, name=f"t{i}") for i in range(1, 9)])
    for _ in range(30):
        for i, result in enumerate(function(tf.ones([4])), 1):
            same(result, np.full([4], i * hvd.size(), np.float32))


@needs_xla
def test_the_token_goes_from_call_to_call() -> None:
    """Whoever uses it, waits for all that have used it before: calls, branches, loops, functions."""
    inner = tf.function(lambda x: hvd.allreduce(x, name="inner"))

    def run(x: Any) -> Any:
        made = [hvd.allreduce(x, name="one"), hvd.broadcast(x, 0), inner(x)]
        made.append(tf.cond(x[0] > 0, lambda: hvd.allreduce(x, name="branch"), lambda: x))
        made.append(hvd.allgather(x))
        made += tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, hvd.allreduce(y, name="loop")), (0, x))
        return [*made, hvd.reducescatter(x)]

    graph = compiled(run).get_concrete_function(tf.ones([6])).graph
    users = [op for op in graph.get_operations() if any(i.dtype == tf.resource for i in op.inputs)]
    assert len({id(i) for op in users for i in op.inputs if i.dtype == tf.resource}) == 1
    one_call = ["ReadVariableOp", "AssignVariableOp"]
    others = ["PartitionedCall", "If", *one_call, "While"]
    assert [op.type.removeprefix("Stateful") for op in users] == [*one_call, *one_call, *others, *one_call]
    for before, after in pairwise(users):
        if before.type == "ReadVariableOp":  # to the call, and from it
            assert after.type == "AssignVariableOp"
            assert after.inputs[1].op.inputs[-1] is before.outputs[0]
        else:
            assert before in after.control_inputs, (before.name, after.name)
    assert users[-1] in graph.control_outputs


@needs_xla
def test_calls_in_branches_loops_and_functions_keep_their_turn() -> None:
    inner = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum, name="inner"))

    def two(x: Any) -> Any:
        return hvd.allreduce(x, op=hvd.Sum, name="one") + hvd.allreduce(2.0 * x, op=hvd.Sum, name="two")

    def step(i: Any, x: Any) -> Any:
        hvd.allreduce(x, name="unused")
        return i + 1, two(x) / (3.0 * hvd.size())

    def run(x: Any) -> Any:
        before = hvd.allreduce(x, op=hvd.Sum, name="before")
        called = inner(x * 3.0)
        branch = tf.cond(tf.reduce_sum(x) > 0, lambda: two(x), lambda: x)
        between = hvd.allreduce(x * 4.0, op=hvd.Sum, name="between")
        _, loop = tf.while_loop(lambda i, _: i < 3, step, (0, x))
        after = hvd.allreduce(x * 5.0, op=hvd.Sum, name="after")
        return before, called, branch, between, loop, after, inner(x * 6.0)

    size = hvd.size()
    function = compiled(run)
    for _ in range(30):
        found = [float(array(result)[0]) for result in function(tf.ones([4]))]
        assert found == [size, 3 * size, 3 * size, 4 * size, 1, 5 * size, 6 * size]


@needs_xla
@pytest.mark.usefixtures("several_ranks")
def test_equal_calls_are_not_merged() -> None:
    """Rank 0 has both in one program: merged, one would never meet the other ranks'."""

    def run(*names: str) -> Any:
        return compiled(lambda: [hvd.allreduce(tf.constant(1.0), name=name, op=hvd.Sum) for name in names])()

    results = run("x", "y") if hvd.rank() == 0 else [*run("x"), *run("y")]
    assert [float(one) for one in results] == [hvd.size()] * 2


@needs_xla
def test_a_call_whose_result_is_not_used_runs() -> None:
    def run() -> Any:
        hvd.allreduce(tf.constant(1.0))
        return tf.constant(2.0)

    function = compiled(run)
    assert float(function()) == 2.0
    hvd.shutdown()
    with pytest.raises(tf.errors.UnknownError, match="shut down"):
        function()
    hvd.init()
    assert float(function()) == 2.0


@needs_xla
@pytest.mark.usefixtures("several_ranks")
def test_a_compiled_call_meets_one_that_is_not() -> None:
    """The names on the wire are the same."""

    def run(x: Any) -> Any:
        with tf.name_scope("scope"):
            made = [hvd.allreduce(x, op=hvd.Sum), hvd.allreduce(x, name="same"), hvd.allreduce(x, name="same")]
        return [*made, *hvd.grouped_allreduce([x, x]), hvd.broadcast(x, 0, ignore_name_scope=True)]

    for result in tf.function(run, jit_compile=hvd.rank() == 0)(tf.ones([2])):
        assert array(result)[0] in (1.0, hvd.size())


@needs_xla
def test_queries_ask_when_the_program_runs() -> None:
    def run() -> Any:
        return hvd.size_op(), hvd.rank_op(), hvd.local_rank_op(), hvd.local_size_op(), hvd.process_set_included_op()

    function = compiled(run)
    expected = [hvd.size(), hvd.rank(), hvd.local_rank(), hvd.local_size(), 1]
    assert [int(one) for one in function()] == expected
    hvd.shutdown()
    with pytest.raises(tf.errors.UnknownError, match="shut down"):
        function()
    hvd.init()
    assert [int(one) for one in function()] == expected
    with pytest.raises(tf.errors.InvalidArgumentError, match="99"):
        compiled(lambda: hvd.size_op(99))()


@needs_xla
def test_join_is_compiled_too() -> None:
    assert 0 <= int(compiled(hvd.join)()) < hvd.size()
    assert_usable()


@needs_xla
def test_a_graph_of_tf1_is_refused() -> None:
    with tf.Graph().as_default(), pytest.raises(RuntimeError, match="TF1"):
        compiled(lambda x: hvd.allreduce(x))(tf.ones([2]))  # noqa: PLW0108


@needs_xla
@pytest.mark.usefixtures("several_ranks")
def test_ranks_that_disagree_all_fail_and_go_on() -> None:
    given = tf.ones([3 + hvd.rank()])
    with pytest.raises(tf.errors.FailedPreconditionError, match="shape"):
        compiled(lambda x: hvd.allreduce(x))(given)  # noqa: PLW0108
    with pytest.raises(tf.errors.FailedPreconditionError, match="root"):
        compiled(lambda x: hvd.broadcast(x, hvd.rank()))(tf.ones([3]))
    for run in (hvd.allgather, lambda x: hvd.grouped_allgather([x, x])):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"all ranks together.*jit_compile=False"):
            compiled(run)(given)
    rows = tf.ones([hvd.size() * (1 + hvd.rank())])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"all ranks together.*jit_compile=False"):
        compiled(hvd.alltoall)(rows)
    assert_usable()
    same(compiled(lambda x: hvd.allreduce(x, op=hvd.Sum))(tf.ones([3])), np.full([3], hvd.size(), np.float32))


@needs_xla
def test_mistakes_are_answered_while_tracing() -> None:
    unknown = tf.function(lambda x: hvd.allreduce(x), jit_compile=True, input_signature=[tf.TensorSpec([None, 2])])  # noqa: PLW0108
    with pytest.raises(ValueError, match=r"\(None, 2\).*jit_compile=False"):
        unknown(tf.ones([3, 2]))
    with pytest.raises(TypeError, match="bool"):
        compiled(lambda x: hvd.allreduce(x))(tf.constant([True]))  # noqa: PLW0108
    with pytest.raises(TypeError, match="one type"):
        compiled(lambda x: hvd.grouped_allreduce([x, tf.cast(x, tf.float64)]))(tf.ones([2]))
    with pytest.raises(ValueError, match=r"splits.*jit_compile=False"):
        compiled(lambda x: hvd.alltoall(x, splits=[5] + [0] * (hvd.size() - 1)))(tf.ones([4]))
    with pytest.raises(ValueError, match="scalar"):
        compiled(lambda x: hvd.reducescatter(x))(tf.constant(1.0))  # noqa: PLW0108
    with pytest.raises(tf.errors.AbortedError, match="Average or Sum"):
        compiled(lambda x: hvd.reducescatter(x, op=hvd.Max))(tf.ones([4]))


@needs_xla
def test_after_shutdown_it_says_so() -> None:
    function = compiled(lambda x: hvd.allreduce(x))  # noqa: PLW0108
    hvd.shutdown()
    with pytest.raises(tf.errors.UnknownError, match="shut down"):
        function(tf.ones([2]))


def test_a_gpu_is_refused_with_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gpu:
        name, device_type = "/device:GPU:0", "GPU"

    monkeypatch.setattr(_xla_support, "_problem_of_version", lambda: None)
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda: [Gpu()])
    with pytest.raises(RuntimeError, match=r"GPU:0.*jit_compile=False"):
        compiled(lambda x: hvd.allreduce(x))(tf.ones([2]))  # noqa: PLW0108


def test_an_old_tensorflow_is_refused_with_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tf, "__version__", "2.17.1")
    monkeypatch.setattr(_xla_support, "_problem_of_version", _xla_support._problem_of_version.__wrapped__)
    with pytest.raises(RuntimeError, match=r"TensorFlow 2\.17\.1.*2\.18.*jit_compile=False"):
        compiled(lambda x: hvd.allreduce(x))(tf.ones([2]))  # noqa: PLW0108
