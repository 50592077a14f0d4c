"""Names, signatures and rules of horovod.tensorflow's functions, one test for each paragraph."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest
import tensorflow as tf

import horovod.tensorflow as hvd
from documented import undocumented
from horovod.tensorflow import _private, sync_batch_norm
from tf_world import array, in_function, same

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
