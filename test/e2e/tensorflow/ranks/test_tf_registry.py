"""The ops of horovod.tensorflow: names, arguments, shapes, and what saved graphs know of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd
from tf_world import assert_usable, in_graph, node_names, same

OPS = """
    Allreduce GroupedAllreduce Allgather GroupedAllgather Broadcast Alltoall Reducescatter GroupedReducescatter Join
    Size ProcessSetIncluded LocalSize Rank LocalRank
"""


def test_ops_are_registered_with_their_wrappers() -> None:
    from tensorflow.python.framework import op_def_registry

    for name in OPS.split():
        assert op_def_registry.get(f"Horovod{name}") is not None, name
        snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in f"Horovod{name}")[1:]
        assert callable(getattr(hvd.mpi_ops.MPI_LIB, snake)), snake


@pytest.mark.parametrize("op", OPS.split())
def test_kernels_for_gpus_have_all_arguments_in_host_memory(op: str) -> None:
    """TensorFlow copies tensors there then. Without a GPU that is all that can be seen of it."""
    from tensorflow.python.framework import kernels, op_def_registry

    found = op_def_registry.get(f"Horovod{op}")
    arguments = {one.name for one in (*found.input_arg, *found.output_arg)}
    registered = kernels.get_registered_kernels_for_op(f"Horovod{op}").kernel
    assert {one.device_type: set(one.host_memory_arg) for one in registered} == {"CPU": set(), "GPU": arguments}


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "attributes"),
    [
        ("Allreduce", ["tensor"], ["sum"], "T reduce_op prescale_factor postscale_factor ignore_name_scope process_set_id"),
        ("GroupedAllreduce", ["tensors"], ["sum"], "T reduce_op prescale_factor postscale_factor ignore_name_scope process_set_id num_tensors"),
        ("Allgather", ["tensor"], ["output"], "T ignore_name_scope process_set_id"),
        ("GroupedAllgather", ["tensors"], ["outputs"], "T ignore_name_scope process_set_id num_tensors"),
        ("Broadcast", ["tensor"], ["output"], "T root_rank ignore_name_scope process_set_id"),
        ("Alltoall", ["tensor", "splits"], ["output", "received_splits"], "T ignore_name_scope process_set_id"),
        ("Reducescatter", ["tensor"], ["output"], "T reduce_op prescale_factor postscale_factor ignore_name_scope process_set_id"),
        ("GroupedReducescatter", ["tensors"], ["outputs"], "T reduce_op prescale_factor postscale_factor ignore_name_scope process_set_id num_tensors"),
        ("Size", [], ["size"], "process_set_id"),
        ("ProcessSetIncluded", [], ["included"], "process_set_id"),
    ],
)  # fmt: skip
def test_ops_have_the_arguments_that_saved_graphs_use(
    op: str, inputs: list[str], outputs: list[str], attributes: str
) -> None:
    from tensorflow.python.framework import op_def_registry

    found = op_def_registry.get(f"Horovod{op}")
    assert [one.name for one in found.input_arg] == inputs
    assert len(found.output_arg) == len(outputs)
    assert {one.name for one in found.attr} == set(attributes.split())
    defaults = {one.name: one.default_value for one in found.attr if one.HasField("default_value")}
    if "ignore_name_scope" in attributes:
        assert not defaults["ignore_name_scope"].b
    assert defaults["process_set_id"].i == 0
    assert found.is_stateful


def test_nodes_are_called_by_their_inputs() -> None:
    def run() -> None:
        x, y = tf.ones([2], name="x"), tf.ones([2], name="scope/y")
        hvd.allreduce(x)
        hvd.allgather(y)
        hvd.broadcast(x, 0)
        hvd.alltoall(x, [2] + [0] * (hvd.size() - 1))
        hvd.reducescatter(x)
        hvd.grouped_allreduce([x, x, y])
        hvd.grouped_allgather([x, y])
        hvd.grouped_reducescatter([x, y])
        hvd.allreduce(x, name="mine")
        hvd.allreduce(tf.IndexedSlices(x, tf.constant([0, 1], name="places")))

    assert node_names(run) == [
        "HorovodAllreduce_x_0",
        "HorovodAllgather_scope_y_0",
        "HorovodBroadcast_x_0",
        "HorovodAlltoall_x_0",
        "HorovodReducescatter_x_0",
        "HorovodGroupedAllreduce_x_0_scope_y_0",
        "HorovodGroupedAllgather_x_0_scope_y_0",
        "HorovodGroupedReducescatter_x_0_scope_y_0",
        "mine",
        "HorovodAllgather_x_0",
        "HorovodAllgather_places_0",
    ]


@pytest.mark.usefixtures("several_ranks")
def test_scopes_are_left_out_of_wire_names_on_request() -> None:
    """Ranks in other scopes meet only then."""

    def run(ignore: bool) -> Any:
        with tf.name_scope(f"rank{hvd.rank()}"):
            return hvd.allreduce(tf.ones([1]), name="x", op=hvd.Sum, ignore_name_scope=ignore)

    same(tf.function(lambda: run(True))(), np.full([1], hvd.size(), np.float32))
    same(in_graph(lambda: run(True)), np.full([1], hvd.size(), np.float32))


def test_shapes_are_inferred() -> None:
    shapes: dict[str, Any] = {}

    def run(x: Any, unknown: Any) -> None:
        for name, one in (("known", x), ("unknown", unknown)):
            shapes[name] = [
                hvd.allreduce(one).shape,
                hvd.broadcast(one, 0).shape,
                hvd.allgather(one).shape,
                hvd.alltoall(one).shape,
                hvd.reducescatter(one).shape,
            ]
        shapes["grouped"] = [one.shape for one in hvd.grouped_allgather([x, x])]
        shapes["splits"] = [one.shape for one in hvd.alltoall(x, [2, 2])]
        shapes["scalars"] = [hvd.size_op().shape, hvd.join().shape]

    tf.function(run).get_concrete_function(tf.TensorSpec([4, 3]), tf.TensorSpec(None))
    assert [one.as_list() for one in shapes["known"]] == [[4, 3], [4, 3], [None, 3], [None, 3], [None, 3]]
    assert all(one.rank is None for one in shapes["unknown"])
    assert [one.as_list() for one in shapes["grouped"]] == [[None, 3]] * 2
    assert shapes["splits"][0].as_list() == [None, 3]
    assert [one.as_list() for one in shapes["scalars"]] == [[], []]
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError)):
        tf.function(lambda: hvd.reducescatter(tf.constant(1.0))).get_concrete_function()


def test_types_that_do_not_fit_are_refused_by_name() -> None:
    for run, dtype in (
        (hvd.allreduce, tf.bool),
        (hvd.allreduce, tf.complex64),
        (hvd.allreduce, tf.dtypes.experimental.float8_e4m3fn),
        (hvd.allgather, tf.dtypes.experimental.float8_e5m2),
        (hvd.allgather, tf.string),
        (hvd.reducescatter, tf.uint8),
    ):
        given = tf.cast(tf.zeros([2 * hvd.size()]), dtype) if dtype != tf.string else tf.constant(["a"])
        for call in (run, lambda one, run=run: tf.function(run)(one)):
            with pytest.raises((tf.errors.OpError, TypeError, ValueError), match=dtype.name):
                call(given)
    for run, name in ((hvd.allreduce, "allreduce"), (lambda one: hvd.grouped_allreduce([one]), "grouped_allreduce")):
        with pytest.raises(tf.errors.InvalidArgumentError) as refused:
            run(tf.constant([True]))
        words = f"{name}: tensor type bool is not supported; use tf.cast() to one of uint8, "
        assert str(refused.value).startswith(words)
        assert "NodeDef" not in str(refused.value)
    with pytest.raises((tf.errors.InvalidArgumentError, TypeError)):
        hvd.grouped_allreduce([tf.ones([1]), tf.ones([1], tf.float64)])
    assert_usable()


def test_ops_without_a_gradient() -> None:
    x = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        result = x * tf.cast(hvd.size_op(), tf.float32) * tf.cast(1 + hvd.rank_op(), tf.float32)
    assert float(tape.gradient(result, x)) == hvd.size() * (1 + hvd.rank())
