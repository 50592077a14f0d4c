"""Names, signatures and rules of horovod.tensorflow (contract 03 §3.1 to 3.8, 3.11), one test for each paragraph."""

from __future__ import annotations

import importlib
import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd
from horovod.tensorflow import _reduction
from tf_world import array, assert_usable, in_function, in_graph, same

v1 = tf.compat.v1

NAMES = """
    Compression allgather_object broadcast_object broadcast_object_fn broadcast_variables allreduce grouped_allreduce
    allgather grouped_allgather broadcast broadcast_ alltoall reducescatter grouped_reducescatter join rank_op
    local_rank_op size_op local_size_op process_set_included_op check_num_rank_power_of_2
    handle_average_backwards_compatibility gpu_available split_list SyncBatchNormalization
    LocalGradientAggregationHelper broadcast_global_variables BroadcastGlobalVariablesHook DistributedOptimizer
    DistributedGradientTape PartialDistributedGradientTape _allreduce _grouped_allreduce _reducescatter
    _grouped_reducescatter _executing_eagerly _make_subgraph _cache vars_to_refs refs_to_vars _make_allreduce_grads_fn
    init shutdown is_initialized rank size local_rank local_size cross_rank cross_size is_homogeneous
    mpi_threads_supported mpi_built mpi_enabled gloo_built gloo_enabled nccl_built ddl_built ccl_built cuda_built
    rocm_built start_timeline stop_timeline Average Sum Adasum Min Max Product ProcessSet global_process_set
    add_process_set remove_process_set
"""
SUBMODULES = """
    mpi_ops functions compression util gradient_aggregation gradient_aggregation_eager sync_batch_norm keras
    data.compute_service data.compute_worker
"""
OPTIONS = (
    "device_dense='', device_sparse='', compression=NoneCompressor, sparse_as_dense=False, op=0, "
    "gradient_predivide_factor=1.0, num_groups=0, groups=None, process_set=global"
)
SIGNATURES = {
    "allreduce": "tensor, average=None, device_dense='', device_sparse='', compression=NoneCompressor, op=None, "
    "prescale_factor=1.0, postscale_factor=1.0, name=None, process_set=global, ignore_name_scope=False",
    "grouped_allreduce": "tensors, average=None, device_dense='', device_sparse='', compression=NoneCompressor, "
    "op=None, prescale_factor=1.0, postscale_factor=1.0, process_set=global, ignore_name_scope=False, name=None",
    "reducescatter": "tensor, device_dense='', compression=NoneCompressor, op=0, name=None, process_set=global, "
    "ignore_name_scope=False, prescale_factor=1.0, postscale_factor=1.0",
    "grouped_reducescatter": "tensors, device_dense='', compression=NoneCompressor, op=0, process_set=global, "
    "prescale_factor=1.0, postscale_factor=1.0",
    "allgather": "tensor, name=None, ignore_name_scope=False, process_set=global",
    "grouped_allgather": "tensors, name=None, ignore_name_scope=False, process_set=global",
    "broadcast": "tensor, root_rank, name=None, ignore_name_scope=False, process_set=global",
    "broadcast_": "variables, root_rank, name=None, process_set=global",
    "alltoall": "tensor, splits=None, name=None, ignore_name_scope=False, process_set=global",
    "join": "",
    "size_op": "process_set_id=0, name=None",
    "process_set_included_op": "process_set_id=0, name=None",
    "rank_op": "name=None",
    "local_rank_op": "name=None",
    "local_size_op": "name=None",
    "broadcast_variables": "variables, root_rank, process_set=global, inplace=False",
    "broadcast_global_variables": "root_rank",
    "BroadcastGlobalVariablesHook": "root_rank, device=''",
    "broadcast_object": "obj, root_rank=0, session=None, name=None, process_set=global",
    "broadcast_object_fn": "root_rank=0, session=None, name=None, process_set=global",
    "allgather_object": "obj, session=None, name=None, process_set=global",
    "DistributedOptimizer": "optimizer, name=None, use_locking=False, device_dense='', device_sparse='', "
    "compression=NoneCompressor, sparse_as_dense=False, backward_passes_per_step=1, op=0, "
    "gradient_predivide_factor=1.0, average_aggregated_gradients=False, num_groups=0, groups=None, "
    "process_set=global, scale_local_gradients=True",
    "DistributedGradientTape": f"gradtape, {OPTIONS}, scale_local_gradients=True",
    "PartialDistributedGradientTape": f"gradtape, {OPTIONS}, local_layers=None, scale_local_gradients=True",
    "LocalGradientAggregationHelper": "backward_passes_per_step, allreduce_func, sparse_as_dense, "
    "average_aggregated_gradients, rank, optimizer_type, process_set=global, scale_local_gradients=True, name=''",
    "SyncBatchNormalization": "fused=False, **kwargs",
    "init": "comm=None, process_sets=None",
    "start_timeline": "file_path, mark_cycles=False",
}
TAPE_SIGNATURES = {
    "gradient": "target, sources, output_gradients=None, use_generic_names=False",
    "get_local_and_global_gradients": "target, sources, output_gradients=None, use_generic_names=False",
}
OPS = """
    Allreduce GroupedAllreduce Allgather GroupedAllgather Broadcast Alltoall Reducescatter GroupedReducescatter Join
    Size ProcessSetIncluded LocalSize Rank LocalRank
"""


def written(parameter: inspect.Parameter) -> str:
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        return f"**{parameter.name}"
    default = parameter.default
    if default is inspect.Parameter.empty:
        return parameter.name
    if default is hvd.global_process_set:
        return f"{parameter.name}=global"
    return f"{parameter.name}={default.__name__ if inspect.isclass(default) else repr(default)}"


def signature_of(function: Any, leave_out: tuple[str, ...] = ("self",)) -> str:
    parameters = inspect.signature(function).parameters.values()
    return ", ".join(written(one) for one in parameters if one.name not in leave_out)


def test_names() -> None:
    for name in NAMES.split():
        assert hasattr(hvd, name), name
        assert name in hvd.__all__, name
    for module in SUBMODULES.split():
        importlib.import_module(f"horovod.tensorflow.{module}")
    assert not hasattr(hvd, "barrier")
    assert not hasattr(hvd, "allreduce_async")
    assert [hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product] == list(range(6))
    assert hvd.mpi_ops._basics._get_process_set_ids_and_ranks()[0] == list(range(hvd.size()))


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(name: str) -> None:
    assert signature_of(getattr(hvd, name)) == SIGNATURES[name]


@pytest.mark.parametrize("name", TAPE_SIGNATURES)
def test_signatures_of_tapes(name: str) -> None:
    tape = hvd.DistributedGradientTape(tf.GradientTape())
    assert signature_of(getattr(tape, name), ("self", "options")).removesuffix(", **options") == TAPE_SIGNATURES[name]


def test_low_level_reductions_sum() -> None:
    ones = tf.ones([hvd.size()])
    for function in (hvd._allreduce, hvd._reducescatter):
        assert array(function(ones))[0] == hvd.size()
    for function in (hvd._grouped_allreduce, hvd._grouped_reducescatter):
        assert array(function([ones])[0])[0] == hvd.size()


def test_helpers() -> None:
    assert [n for n in range(1, 20) if hvd.check_num_rank_power_of_2(n)] == [1, 2, 4, 8, 16]
    assert not hvd.check_num_rank_power_of_2(0)
    assert hvd.split_list([1, 2, 3, 4, 5], 2) == [[1, 2, 3], [4, 5]]
    assert hvd.gpu_available("nonsense") is False
    assert hvd._executing_eagerly()
    assert not in_function(lambda: tf.constant(hvd._executing_eagerly()))
    variables = [tf.Variable(1.0), tf.Variable(2.0)]
    refs = hvd.vars_to_refs([variables, variables[0]])
    assert hash(refs) == hash(hvd.vars_to_refs([variables, variables[0]]))
    assert hvd.refs_to_vars(refs)[0][1] is variables[1]
    assert hvd.refs_to_vars(hvd.vars_to_refs(variables[0])) is variables[0]
    calls = []
    cached = hvd._cache(lambda x, y=0: calls.append((x, y)) or len(calls))
    assert [cached(1), cached(1), cached(1, y=2), cached(1)] == [1, 1, 2, 1]
    graph = hvd._make_subgraph(lambda x: x + tf.constant(float(hvd._executing_eagerly())))
    assert graph(tf.constant(1.0)) == 1.0


def test_compressors() -> None:
    from horovod.tensorflow.compression import Compression, Compressor, FP16Compressor, NoneCompressor

    assert (Compression.none, Compression.fp16) == (NoneCompressor, FP16Compressor)
    assert issubclass(FP16Compressor, Compressor)
    for dtype in (tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.int32):
        given = tf.cast(tf.range(4), dtype)
        small, context = FP16Compressor.compress(given)
        assert small.dtype == (tf.float16 if dtype.is_floating else dtype)
        same(FP16Compressor.decompress(small, context), given)
    with pytest.raises(NotImplementedError):
        Compressor.compress(tf.ones([1]))


# The registry


def test_ops_are_registered_with_their_wrappers() -> None:
    from tensorflow.python.framework import op_def_registry

    for name in OPS.split():
        assert op_def_registry.get(f"Horovod{name}") is not None, name
        snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in f"Horovod{name}")[1:]
        assert callable(getattr(hvd.mpi_ops.MPI_LIB, snake)), snake


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
def test_ops_have_the_arguments_that_saved_graphs_use(op: str, inputs: list[str], outputs: list[str], attributes: str) -> None:
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


def node_names(run: Callable[[], Any]) -> list[str]:
    """The names of Horovod's nodes in the graph of a function."""
    graph = tf.function(run).get_concrete_function().graph
    return [op.name for op in graph.get_operations() if op.type.startswith("Horovod")]


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
        (hvd.allgather, tf.string),
        (hvd.reducescatter, tf.uint8),
    ):
        given = tf.zeros([2 * hvd.size()], dtype) if dtype != tf.string else tf.constant(["a"])
        for call in (run, lambda one, run=run: tf.function(run)(one)):
            with pytest.raises((tf.errors.OpError, TypeError, ValueError), match=dtype.name):
                call(given)
    with pytest.raises((tf.errors.InvalidArgumentError, TypeError)):
        hvd.grouped_allreduce([tf.ones([1]), tf.ones([1], tf.float64)])
    assert_usable()


def test_ops_without_a_gradient() -> None:
    x = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        result = x * tf.cast(hvd.size_op(), tf.float32) * tf.cast(1 + hvd.rank_op(), tf.float32)
    assert float(tape.gradient(result, x)) == hvd.size() * (1 + hvd.rank())


# Arguments


def test_numpy_lists_variables_and_scalars_are_taken() -> None:
    size = hvd.size()
    for given in (np.ones([2], np.float32), [1.0, 1.0], tf.Variable([1.0, 1.0]), tf.keras.Variable([1.0, 1.0])):
        same(hvd.allreduce(given, op=hvd.Sum), np.full([2], size, np.float32))
        assert array(hvd.allgather(given)).shape == (2 * size,)
    assert float(hvd.allreduce(3.0)) == 3.0
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


def slices(rows: int, start: int = 0, value: float = 1.0) -> tf.IndexedSlices:
    return tf.IndexedSlices(
        tf.fill([rows, 2], value), tf.range(start, start + rows), dense_shape=tf.constant([10, 2])
    )


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
    whole = hvd.allreduce(tf.IndexedSlices(tf.constant([[5, 3]]), tf.constant([0])), op=hvd.Average)
    same(whole.values, np.array([[5 // size, 3 // size]] * size, np.int32))


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


# Tapes and optimizers


def traces_of(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with each graph that is made for gradients."""
    traces: list[int] = []
    real = _reduction.GradientReduction._reduce

    def counted(self: Any, *args: Any) -> Any:
        traces.append(1)
        return real(self, *args)

    monkeypatch.setattr(_reduction.GradientReduction, "_reduce", counted)
    return traces


def test_many_tapes_trace_once(monkeypatch: pytest.MonkeyPatch) -> None:
    traces = traces_of(monkeypatch)
    variables = [tf.Variable([1.0, 2.0]), tf.Variable(3.0)]

    def step(**options: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variables[0]) * variables[1]
        hvd.DistributedGradientTape(tape, **options).gradient(loss, variables)

    for _ in range(10):
        step(gradient_predivide_factor=3.0)
    assert len(traces) == 1
    for _ in range(3):
        step(gradient_predivide_factor=3.0, groups=1)
        step(gradient_predivide_factor=3.0, groups=[[variables[1]]])
    assert len(traces) == 3
    make = hvd._make_allreduce_grads_fn
    arguments: tuple[Any, ...] = ("a", "", "", hvd.Compression.none, False, hvd.Sum, 1.0, None, hvd.global_process_set)
    assert make(*arguments) is make(*arguments)
    assert make(*arguments) is not make("b", *arguments[1:])


def test_tapes_keep_what_they_wrap() -> None:
    watched, unwatched = tf.Variable(2.0), tf.Variable(3.0)
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        tape.watch(watched)
        loss = watched * unwatched
    wrapped = hvd.DistributedGradientTape(tape)
    assert isinstance(wrapped, tf.GradientTape)
    for _ in range(2):  # persistent
        grads = wrapped.gradient(loss, [watched, unwatched])
        assert isinstance(grads, list)
        assert float(grads[0]) == 3.0
        assert grads[1] is None
    assert float(wrapped.gradient(loss, watched)) == 3.0
    assert float(wrapped.gradient(loss, {"a": watched, "b": [unwatched]})["a"]) == 3.0
    assert float(wrapped.gradient(loss, (watched,), tf.constant(2.0))[0]) == 6.0


@pytest.mark.usefixtures("several_ranks")
@pytest.mark.parametrize("traced", [False, True])
def test_generic_names_meet_from_any_scope(traced: bool) -> None:
    variable = tf.Variable(1.0)

    def step() -> Any:
        with tf.name_scope(f"rank{hvd.rank()}"):
            with tf.GradientTape() as tape:
                loss = variable * float(hvd.rank())
            return hvd.DistributedGradientTape(tape, op=hvd.Sum).gradient(loss, [variable], use_generic_names=True)[0]

    total = hvd.size() * (hvd.size() - 1) / 2
    assert float((tf.function(step) if traced else step)()) == total
    if traced:
        assert [name.rsplit("/")[-1] for name in node_names(step)] == ["grad_0"]


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 7, "lists"])
def test_groups(traced: bool, groups: Any) -> None:
    """Of several types, and with gradients that are None."""
    variables = [tf.Variable(1.0), tf.Variable([2.0], dtype=tf.float64), tf.Variable(3.0), tf.Variable(4.0), tf.Variable(5.0)]
    wanted = [[variables[4], variables[0]], [variables[1]]] if groups == "lists" else groups

    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = variables[0] * variables[2] * variables[4] + tf.cast(tf.reduce_sum(variables[1]), tf.float32)
        return hvd.DistributedGradientTape(tape, op=hvd.Sum, groups=wanted).gradient(loss, variables)

    grads = (tf.function(step) if traced else step)()
    assert grads[3] is None
    found = [float(tf.reduce_sum(grads[i])) for i in (0, 1, 2, 4)]
    assert found == [15.0 * hvd.size(), 1.0 * hvd.size(), 5.0 * hvd.size(), 3.0 * hvd.size()]


@pytest.fixture
def elastic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_ELASTIC", "1")


@pytest.mark.usefixtures("elastic")
@pytest.mark.parametrize("mode", ["eager", "function", "graph"])
def test_elastic_graphs_ask_when_they_run(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    traces = traces_of(monkeypatch)
    name = f"elastic_{mode}"
    reduce = hvd._make_allreduce_grads_fn(
        name, "", "", hvd.Compression.none, False, hvd.Average, 1.0, None, hvd.global_process_set
    )
    rank, size = hvd.rank(), hvd.size()
    expected = np.zeros([10, 2], np.float32)
    expected[:size] = 1 / size

    def check(dense: Any, sparse: Any) -> None:
        np.testing.assert_allclose(dense, [(size - 1) / 2], rtol=1e-6)
        np.testing.assert_allclose(sparse, expected, rtol=1e-6)

    def run() -> Any:
        dense, sparse, nothing = reduce([tf.constant([float(rank)]), slices(1, rank), None])
        assert nothing is None
        return dense, tf.convert_to_tensor(sparse)

    if mode == "graph":
        with tf.Graph().as_default(), v1.Session() as session:
            check(*session.run(run()))
    elif mode == "function":
        check(*tf.function(run)())
    else:
        check(*run())
        check(*run())
    assert len(traces) == 1
    if mode == "function":
        graph = tf.function(run).get_concrete_function().graph
        types = {op.type for op in graph.get_operations()}
        assert {"HorovodSize", "HorovodProcessSetIncluded"} <= types
        assert "HorovodAllreduce" not in types  # it is in the branch


def test_without_elastic_the_choice_is_made_when_traced() -> None:
    def run() -> Any:
        with tf.GradientTape() as tape:
            x = tf.constant(1.0)
            tape.watch(x)
            loss = 2 * x
        return hvd.DistributedGradientTape(tape).gradient(loss, [x])[0]

    graph = tf.function(run).get_concrete_function().graph
    types = [op.type for op in graph.get_operations() if op.type.startswith("Horovod")]
    assert types == (["HorovodAllreduce"] if hvd.size() > 1 else [])


@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("passes", [1, 2])
def test_local_variables_of_legacy_optimizers(scale: bool, passes: int) -> None:
    rank, size = hvd.rank(), hvd.size()
    with tf.Graph().as_default(), v1.Session() as session:
        shared = v1.get_variable("shared", initializer=0.0)
        local = v1.get_variable("local", initializer=0.0)
        optimizer = hvd.DistributedOptimizer(
            v1.train.GradientDescentOptimizer(1.0),
            op=hvd.Sum,
            backward_passes_per_step=passes,
            scale_local_gradients=scale,
        )
        optimizer.register_local_var(local)
        train = optimizer.minimize((shared + local) * float(rank + 1))
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        for _ in range(passes):
            session.run(train)
        assert session.run(shared) == -passes * size * (size + 1) / 2
        np.testing.assert_allclose(session.run(local), -passes * (rank + 1) / (size if scale else 1), rtol=1e-6)


def test_local_variables_of_tapes() -> None:
    shared, local = tf.Variable(1.0), tf.Variable(1.0)
    for scale in (True, False):
        with tf.GradientTape() as tape:
            loss = (shared + local) * float(hvd.rank() + 1)
        tape = hvd.DistributedGradientTape(tape, op=hvd.Sum, scale_local_gradients=scale)
        tape.register_local_source(local)
        grads = tape.gradient(loss, [local, shared])
        assert float(grads[0]) == pytest.approx((hvd.rank() + 1) / (hvd.size() if scale else 1))
        assert float(grads[1]) == hvd.size() * (hvd.size() + 1) / 2
    with pytest.raises(ValueError, match="local_layers"):
        hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers="dense")


@pytest.fixture
def graph() -> Iterator[Any]:
    with tf.Graph().as_default(), v1.Session() as session:
        yield session


def test_a_legacy_optimizer_delegates(graph: Any) -> None:
    variable = v1.get_variable("x", initializer=[1.0, 2.0])
    inner = v1.train.MomentumOptimizer(0.5, 0.9)
    optimizer = hvd.DistributedOptimizer(inner)
    assert isinstance(optimizer, v1.train.Optimizer)
    assert optimizer.get_name() == "DistributedMomentumOptimizer"
    assert hvd.DistributedOptimizer(inner, name="other").get_name() == "other"
    pairs = optimizer.compute_gradients(tf.reduce_sum(variable) * float(hvd.rank()), [variable])
    step = v1.train.get_or_create_global_step()
    train = optimizer.apply_gradients(pairs, global_step=step, name="train")
    graph.run(v1.global_variables_initializer())
    graph.run(train)
    mean = (hvd.size() - 1) / 2
    np.testing.assert_allclose(graph.run(variable), [1 - 0.5 * mean, 2 - 0.5 * mean], rtol=1e-6)
    assert graph.run(step) == 1
    assert optimizer.get_slot_names() == ["momentum"]
    np.testing.assert_allclose(graph.run(optimizer.get_slot(variable, "momentum")), [mean] * 2, rtol=1e-6)
    assert len(optimizer.variables()) == 1


def test_aggregation_in_graphs(graph: Any) -> None:
    """Sparse gradients made dense, a variable without a gradient, names and collections of the accumulators."""
    table, other = v1.get_variable("table", initializer=tf.zeros([3, 2])), v1.get_variable("other", initializer=0.0)
    optimizer = hvd.DistributedOptimizer(
        v1.train.GradientDescentOptimizer(1.0), op=hvd.Sum, backward_passes_per_step=2, sparse_as_dense=True, name="opt"
    )
    pairs = optimizer.compute_gradients(tf.reduce_sum(tf.gather(table, [0])), [table, other])
    assert [grad is None for grad, _ in pairs] == [False, True]
    train = optimizer.apply_gradients(pairs)
    names = {one.name for one in v1.local_variables()}
    assert f"aggregation_variables_opt{hvd.rank()}/aggregation_counter:0" in names
    assert len(names) == 2
    assert len(v1.get_collection("aggregating_collection")) == 1
    assert all(not one.trainable for one in v1.local_variables())
    graph.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
    seen = []
    for _ in range(4):
        graph.run(train)
        seen.append(float(graph.run(table)[0, 0]))
    assert seen == [0, -2 * hvd.size(), -2 * hvd.size(), -4 * hvd.size()]


def test_aggregation_refuses_sparse_gradients_and_bad_numbers(graph: Any) -> None:
    table = v1.get_variable("table", initializer=tf.zeros([3, 2]))
    optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0), backward_passes_per_step=2)
    with pytest.raises(ValueError, match="sparse_as_dense"):
        optimizer.minimize(tf.reduce_sum(tf.gather(table, [0])))
    for wrong in (0, -1):
        with pytest.raises(ValueError, match="backward_passes_per_step"):
            hvd.LocalGradientAggregationHelper(wrong, None, False, False, 0, "", hvd.global_process_set)


def test_legacy_optimizers_work_eagerly_without_aggregation() -> None:
    variable = tf.Variable(1.0)
    optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.5), op=hvd.Sum)
    optimizer.minimize(lambda: variable * float(hvd.rank() + 1), var_list=[variable])
    assert float(variable) == pytest.approx(1 - 0.5 * hvd.size() * (hvd.size() + 1) / 2)
    with pytest.raises(ValueError, match="eager"):
        hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.5), backward_passes_per_step=2)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"op": hvd.Sum, "gradient_predivide_factor": 2.0}, ValueError, "predivide"),
        ({"groups": 0}, ValueError, "groups"),
        ({"groups": "all"}, ValueError, "groups"),
        ({"groups": -2}, ValueError, "groups"),
    ],
)
def test_options_are_checked(options: dict[str, Any], error: type[Exception], match: str) -> None:
    for make in (
        lambda: hvd.DistributedGradientTape(tf.GradientTape(), **options),
        lambda: hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0), **options),
        lambda: hvd.DistributedOptimizer(tf.keras.optimizers.SGD(1.0), **options),
    ):
        with pytest.raises(error, match=match):
            make()


def test_names_of_synchronized_layers_are_unique() -> None:
    first, second = hvd.SyncBatchNormalization(), hvd.SyncBatchNormalization()
    assert first.name.startswith("sync_batch_normalization")
    assert first.name != second.name
    for fused in (True, None):
        with pytest.raises(ValueError, match="fused"):
            hvd.SyncBatchNormalization(fused=fused)
