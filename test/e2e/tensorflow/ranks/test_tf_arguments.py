"""Contract 03: what arguments may be, sparse tensors, variables, objects, joining."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd
from tf_world import KERAS_3, array, assert_usable, same, slices

v1 = tf.compat.v1


def test_numpy_lists_variables_and_scalars_are_taken() -> None:
    size = hvd.size()
    keras_variable = tf.keras.Variable if KERAS_3 else tf.Variable
    for given in (np.ones([2], np.float32), [1.0, 1.0], tf.Variable([1.0, 1.0]), keras_variable([1.0, 1.0])):
        same(hvd.allreduce(given, op=hvd.Sum), np.full([2], size, np.float32))
        assert array(hvd.allgather(given)).shape == (2 * size,)
    assert float(hvd.allreduce(3.0)) == 3.0
    (given_back,) = hvd.refs_to_vars(hvd.vars_to_refs([keras_variable([4.0])]))
    same(given_back, np.array([4.0], np.float32))
    same(hvd.grouped_allreduce([1.0, tf.Variable(2.0)], op=hvd.Sum)[1], np.array(2.0 * size, np.float32))
    assert hvd.grouped_allgather([]) == []
    assert hvd.grouped_reducescatter([]) == []


def test_average_is_the_old_name_of_op() -> None:
    ones = tf.ones([1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert float(hvd.allreduce(ones, average=False)[0]) == hvd.size()
        assert float(hvd.allreduce(ones, average=True)[0]) == 1
    with pytest.raises(ValueError, match="average"):
        hvd.allreduce(ones, average=True, op=hvd.Sum)


def test_devices_are_used() -> None:
    def run() -> None:
        hvd.allreduce(tf.ones([2]), device_dense="/cpu:0", name="dense")
        hvd.allreduce(tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0])), device_sparse="/cpu:0", name="sparse")

    graph = tf.function(run).get_concrete_function().graph
    devices = {op.name: op.device for op in graph.get_operations() if op.type.startswith("Horovod")}
    assert {"dense", "sparse_values", "sparse_indices"} == set(devices)
    assert all("CPU:0" in device.upper() for device in devices.values()), devices


# Sparse gradients


@pytest.mark.parametrize("sparse_as_dense", [False, True])
def test_a_rank_may_have_no_rows(sparse_as_dense: bool) -> None:
    """Rank 0 has none."""
    reduce = hvd._make_allreduce_grads_fn(
        "test", "", "", hvd.Compression.none, sparse_as_dense, hvd.Sum, 1.0, None, hvd.global_process_set
    )
    expected = np.zeros([10, 2], np.float32)
    for rank in range(hvd.size()):
        expected[:rank] += 1
    for run in (reduce, tf.function(lambda grads: reduce(grads, None))):
        result = run([slices(hvd.rank())])[0]
        assert isinstance(result, tf.IndexedSlices) != (sparse_as_dense and hvd.size() > 1) or hvd.size() == 1
        same(tf.convert_to_tensor(result), expected)


def test_a_group_may_hold_dense_and_sparse() -> None:
    size = hvd.size()
    given = [tf.ones([3]), slices(1, hvd.rank()), tf.ones([2, 2]), slices(hvd.rank() + 1)]
    results = hvd.grouped_allreduce(given, op=hvd.Sum)
    assert [isinstance(one, tf.IndexedSlices) for one in results] == [False, True, False, True]
    same(results[0], np.full([3], size, np.float32))
    same(results[2], np.full([2, 2], size, np.float32))
    assert array(results[1].indices).tolist() == list(range(size))
    assert array(results[3].values).shape == (size * (size + 1) // 2, 2)


@pytest.mark.parametrize(
    ("dtype", "quotients"), [("int8", "float32"), ("int32", "float64"), ("int64", "float64"), ("float16", "float16")]
)
def test_the_average_of_sparse_integers_loses_no_halves(dtype: str, quotients: str) -> None:
    """As TensorFlow's `/`, which is another one in functions: rows of one index are added up after the division."""
    size = hvd.size()
    given = tf.IndexedSlices(tf.constant([[5, 3]], dtype), tf.constant([0]))
    rows = tf.constant([[5, 3]] * size, dtype)
    for reduce in (hvd.allreduce, lambda one: hvd.grouped_allreduce([one])[0]):
        for way in (lambda body: body, tf.function):
            mean = way(reduce)(given)
            same(mean.values, way(lambda values: values / tf.constant(size, dtype))(rows))
            assert mean.values.dtype == quotients
            whole = array(tf.math.unsorted_segment_sum(mean.values, mean.indices, 1))
            np.testing.assert_allclose(whole, [[5.0, 3.0]], rtol=1e-3)


# Variables and objects


@pytest.mark.parametrize("kind", ["resource", "reference"])
def test_variables_of_both_kinds_are_overwritten_in_place(kind: str) -> None:
    root = hvd.size() - 1
    with tf.Graph().as_default(), v1.Session() as session:
        variables = [
            v1.get_variable(name, initializer=tf.cast(tf.fill([2], hvd.rank()), dtype), use_resource=kind == "resource")
            for name, dtype in (("a", tf.float32), ("b", tf.int64), ("c", tf.bool), ("d", tf.float16), ("e", tf.uint8))
        ]
        session.run(v1.global_variables_initializer())
        values = session.run(hvd.broadcast_(variables, root))
        expected = [np.full([2], root, one.dtype.as_numpy_dtype) for one in variables]
        for value, variable, wanted in zip(values, session.run(variables), expected, strict=True):
            same(value, wanted)
            same(variable, wanted)
        op = hvd.broadcast_variables(variables, 0, inplace=True)
        assert isinstance(op, tf.Operation)
        session.run(v1.global_variables_initializer())
        session.run(op)
        assert session.run(variables[0]).tolist() == [0, 0]
        assert hvd.broadcast_([], 0) == []
        assert isinstance(hvd.broadcast_variables([], 0), tf.Operation)
        session.run(hvd.broadcast_global_variables(0))


def test_variables_of_both_kinds_at_once_are_refused() -> None:
    with tf.Graph().as_default():
        mixed = [v1.get_variable(f"v{kind}", [1], use_resource=kind) for kind in (False, True)]
        with pytest.raises(ValueError, match="resource"):
            hvd.broadcast_(mixed, 0)


def test_variables_are_matched_by_name() -> None:
    """In another order on each rank."""
    names = [f"v{i}" for i in range(6)]
    order = names[hvd.rank() :] + names[: hvd.rank()]
    variables = {name: tf.Variable([10.0 * hvd.rank() + i], name=name) for i, name in enumerate(names)}
    hvd.broadcast_([variables[name] for name in order], 0)
    assert [float(variables[name].numpy()[0]) for name in names] == [float(i) for i in range(6)]


def test_broadcasts_of_other_variables_are_no_tracings_to_warn_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", "tensorflow"):
        for number in range(8):
            variables = [tf.Variable(tf.fill([number + 1], hvd.rank()), name=f"traced{number}")]
            hvd.broadcast_variables(variables, 0)
            assert variables[0].numpy().tolist() == [0] * (number + 1)
            hvd.broadcast_(variables, 0)
    assert not caplog.records


@pytest.mark.usefixtures("several_ranks")
def test_variables_are_broadcast_by_their_position() -> None:
    """Eagerly, too, where ops have no names of their own: a message tells which one differs."""
    variables = [tf.Variable(tf.zeros([2])), tf.Variable(tf.zeros([2 + hvd.rank()]))]
    with pytest.raises(tf.errors.OpError, match="HorovodBroadcast_1"):
        hvd.broadcast_variables(variables, 0)


def test_variables_inside_a_function_and_of_an_empty_list() -> None:
    variable = tf.Variable([float(hvd.rank())])

    def run() -> None:
        hvd.broadcast_variables([variable], hvd.size() - 1)

    tf.function(run)()
    assert float(variable.numpy()[0]) == hvd.size() - 1
    assert hvd.broadcast_variables([], 0) is None
    with pytest.raises(RuntimeError, match="eager"):
        hvd.broadcast_global_variables(0)


def test_objects() -> None:
    root = hvd.size() - 1
    given = {"rank": hvd.rank()} if hvd.rank() == root else None  # of another type on the others
    assert hvd.broadcast_object(given, root) == {"rank": root}
    assert hvd.allgather_object([1] * hvd.rank(), name="lists") == [[1] * rank for rank in range(hvd.size())]
    with tf.Graph().as_default(), v1.Session() as session:
        assert hvd.broadcast_object(given, root, session) == {"rank": root}
        assert hvd.broadcast_object(given, root) == {"rank": root}  # the default session
        assert hvd.allgather_object(hvd.rank()) == list(range(hvd.size()))
        send = hvd.broadcast_object_fn(root, session)
        before = len(session.graph.get_operations())
        for number in range(3):
            assert send((hvd.rank(), "x" * number)) == (root, "x" * number)
        assert len(session.graph.get_operations()) == before
    for call in (lambda: hvd.broadcast_object(1), lambda: hvd.allgather_object(1)):
        with pytest.raises(RuntimeError, match="outside of tf"):
            tf.function(call)()
    with pytest.raises(RuntimeError, match="broadcast_object"):
        hvd.broadcast_object_fn()


def test_a_hook_follows_the_graph() -> None:
    hook = hvd.BroadcastGlobalVariablesHook(0, device="/cpu:0")
    ops = []
    for _ in range(2):
        with tf.Graph().as_default():
            variable = v1.get_variable("x", initializer=tf.constant(float(hvd.rank())))
            with v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
                assert session.run(variable) == 0
            ops.append(hook.bcast_op)
    assert ops[0] is not ops[1]


# Joining


def test_join_under_sessions_and_functions() -> None:
    rank, size = hvd.rank(), hvd.size()
    with tf.Graph().as_default(), v1.Session() as session:
        total = hvd.allreduce(tf.ones([1]), op=hvd.Sum)
        for step in range(rank):
            assert size - 1 - step <= session.run(total)[0] <= size
        assert 0 <= session.run(hvd.join()) < size

    # It comes last, so that the other ranks' steps are not joined with zeros.
    inner = tf.function(lambda: hvd.allreduce(tf.ones([1]), name="inner", op=hvd.Sum))

    def last_steps() -> Any:
        steps = [hvd.allreduce(tf.ones([1]), name=f"step{i}", op=hvd.Sum) for i in range(3)]
        return [*steps, inner(), hvd.join()]

    *sums, last = tf.function(last_steps)()
    assert [float(one[0]) for one in sums] == [size] * 4
    assert 0 <= int(last) < size
    joins = [op for op in tf.function(last_steps).get_concrete_function().graph.get_operations() if op.type == "HorovodJoin"]
    assert [len(op.control_inputs) for op in joins] == [4]
    assert_usable()
