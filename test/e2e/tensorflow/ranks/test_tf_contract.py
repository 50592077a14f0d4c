"""Names, signatures and rules of horovod.tensorflow, one test for each paragraph."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd
from documented import undocumented
from horovod.tensorflow import _private, sync_batch_norm
from tf_world import array, assert_usable, in_function, in_graph, node_names, same

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


def test_help_answers_for_every_public_name() -> None:
    modules = """
    compression data.compute_service data.compute_worker elastic functions gradient_aggregation_eager keras
    keras.callbacks keras.elastic mpi_ops sync_batch_norm util
    """.split()
    assert undocumented(hvd, *(importlib.import_module(f"horovod.tensorflow.{name}") for name in modules)) == []


def test_this_version_has_all_that_is_used_beyond_the_public_api(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _private.missing() == []
    name = "MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS"
    monkeypatch.delattr(importlib.import_module("tensorflow.python.framework.auto_control_deps"), name)
    monkeypatch.setattr(_private, "_MOMENTS", ("_renamed",))
    names = [name, "BatchNormalization._renamed"]
    assert all(lacking.endswith(name) for lacking, name in zip(_private.missing(), names, strict=True))
    with pytest.raises(ImportError, match=rf"TensorFlow {tf.__version__} is installed, and it has no .*{name}"):
        _private.leave_unordered([])
    monkeypatch.setattr(sync_batch_norm, "_METHOD", _private.moments_method())
    with pytest.raises(RuntimeError, match=rf"of TensorFlow {tf.__version__} computes the moments"):
        hvd.SyncBatchNormalization()


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
