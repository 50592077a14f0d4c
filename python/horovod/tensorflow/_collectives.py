"""The public reductions of dense and sparse tensors, with compression and devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod import _env
from horovod._common.calls import Reduction
from horovod._common.gradient_options import in_places
from horovod._common.session import handle_average_backwards_compatibility
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow._dense import allreduce_at_once, run, run_group, size_op
from horovod.tensorflow._session import basics, set_id, set_size
from horovod.tensorflow._xla_support import in_xla
from horovod.tensorflow.compression import Compression, Compressor
from horovod.tensorflow.util import inner_variable, no_autograph

AVERAGE, SUM, ADASUM = basics.Average, basics.Sum, basics.Adasum


def _check_adasum(reduction: Reduction, caller: str) -> None:
    if reduction.op == ADASUM and reduction.process_set is not global_process_set:
        raise NotImplementedError(f"{caller}: Adasum is only supported on the global process set")


def _check_sparse(reduction: Reduction, caller: str) -> None:
    if reduction.op == ADASUM:
        raise NotImplementedError(
            f"{caller}: Adasum does not support sparse tensors; pass sparse_as_dense=True to the optimizer"
        )
    if reduction.op not in (AVERAGE, SUM):
        raise NotImplementedError(f"{caller}: sparse tensors are reduced with Average or Sum only")
    if reduction.prescale != 1.0 or reduction.postscale != 1.0:
        raise NotImplementedError(f"{caller}: prescale and postscale factors are not supported for sparse tensors")


def _finish_sparse(given: Any, values: Any, indices: Any, reduction: Reduction) -> Any:
    process_set = reduction.process_set
    if reduction.op == AVERAGE:
        known = set_size(process_set, "allreduce") if not _env.elastic() else None
        size = known if known is not None else size_op(set_id(process_set, "allreduce"))
        # Integers too become floats first, of the type that TensorFlow's `/` gives: rows of one index are added up
        # later, so that halves count, and a small integer type may not hold the number of ranks.
        wide = values if values.dtype.is_floating else values / tf.ones([], values.dtype)
        values = wide / tf.cast(size, wide.dtype)
    return tf.IndexedSlices(values, indices, dense_shape=given.dense_shape)


def _reduce_sparse(given: Any, name: str | None, reduction: Reduction, ignore_name_scope: bool) -> Any:
    values = run("allgather", given.values, f"{name}_values" if name else None, reduction, ignore_name_scope)
    indices = run("allgather", given.indices, f"{name}_indices" if name else None, reduction, ignore_name_scope)
    return _finish_sparse(given, values, indices, reduction)


@no_autograph
def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """Reduces `tensor` over all ranks of the set into a new tensor. Differentiable.

    Runs eagerly, in a tf.function and in a graph of TF1. The result has the shape and the type of the tensor. Of
    tf.IndexedSlices it has the rows of all ranks, which for Average are divided by the number of ranks, as `/` does it.

    Arguments, the same on all ranks but for the tensor's elements:
        tensor: whatever tf.convert_to_tensor takes, of one shape and type on all ranks, or tf.IndexedSlices, of which
            ranks may have different numbers of rows. uint8, int8, int32, int64, or floats of 16, 32 or 64 bits.
        op: Average (the default), Sum, Min, Max, Product or Adasum. `average` is its deprecated form: True or False.
        device_dense, device_sparse: the tf.device of the op, for a tensor and for tf.IndexedSlices.
        compression: Compression.fp16 sends floating-point elements as float16.
        prescale_factor, postscale_factor: floats; every input is multiplied by the first, the result by the second.
        name: what matches the op between ranks: the name of its node, with scopes. Without one it is derived from the
            tensor's name in a graph, and from the type of the op in eager mode.
        process_set: the ranks that take part, this one among them.
        ignore_name_scope: match by the part of the name after the last `/`.

    ValueError: the set is not registered, or `op` is given with `average`. NotImplementedError: Adasum on another set
    than the global one, or tf.IndexedSlices with factors or another op than Average and Sum. When the op runs,
    tf.errors: InvalidArgumentError if this rank's call is wrong, FailedPreconditionError if ranks disagree,
    UnknownError if a rank is lost.
    """
    op = handle_average_backwards_compatibility(op, average)
    reduction = Reduction(op, prescale_factor, postscale_factor, process_set)
    if isinstance(tensor, tf.IndexedSlices):
        _check_sparse(reduction, "allreduce")
        with tf.device(device_sparse):
            return _reduce_sparse(tensor, name, reduction, ignore_name_scope)
    _check_adasum(reduction, "allreduce")
    with tf.device(device_dense):
        compressed, context = _compress(compression, tensor)
        reduced = run("allreduce", compressed, name, reduction, ignore_name_scope)
        return compression.decompress(reduced, context)


def _compress(compression: type[Compressor], tensor: Any) -> tuple[Any, Any]:
    if compression is Compression.none:
        return tensor, None  # not converted: a variable has a name of its own
    return compression.compress(tf.convert_to_tensor(inner_variable(tensor)))


@no_autograph
def allreduce_each(tensors: Sequence[Any], names: Sequence[str], **common: Any) -> list[Any]:
    """allreduce() of each tensor under its own name, with the same arguments for all.

    In a graph that XLA compiles the dense ones are one call: calls run one after another there.
    """
    dense = [i for i, tensor in enumerate(tensors) if not isinstance(tensor, tf.IndexedSlices)]
    if not in_xla() or len(dense) < 2:
        return [allreduce(tensor, name=name, **common) for tensor, name in zip(tensors, names, strict=True)]
    compression = common["compression"]
    reduction = Reduction(*(common[part] for part in ("op", "prescale_factor", "postscale_factor", "process_set")))
    _check_adasum(reduction, "allreduce")
    packed = [_compress(compression, tensors[i]) for i in dense]
    own_names = [names[i] for i in dense]
    reduced = allreduce_at_once([one for one, _ in packed], own_names, reduction, common["ignore_name_scope"])
    unpacked = [compression.decompress(one, context) for one, (_, context) in zip(reduced, packed, strict=True)]
    return [
        allreduce(tensor, name=name, **common) if made is None else made
        for tensor, name, made in zip(tensors, names, in_places(unpacked, dense, len(tensors)), strict=True)
    ]


@no_autograph
def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> Any:
    """Reduces several tensors together, after every rank has submitted all. Returns a list in the same order.

    `tensors`: as many on every rank, each as for allreduce(); all dense ones have one type. `name`: of the whole group.
    Other arguments and errors as for allreduce().
    """
    if not tensors:
        return tensors
    op = handle_average_backwards_compatibility(op, average)
    reduction = Reduction(op, prescale_factor, postscale_factor, process_set)
    sparse = [i for i, tensor in enumerate(tensors) if isinstance(tensor, tf.IndexedSlices)]
    dense = [i for i, tensor in enumerate(tensors) if not isinstance(tensor, tf.IndexedSlices)]
    results: list[Any] = [None] * len(tensors)
    if sparse:
        _check_sparse(reduction, "grouped_allreduce")
        with tf.device(device_sparse):
            given = [tensors[i] for i in sparse]
            common = (reduction, ignore_name_scope)
            values = run_group("allgather", [one.values for one in given], f"{name}_values" if name else None, *common)
            index_name = f"{name}_indices" if name else None
            indices = run_group("allgather", [one.indices for one in given], index_name, *common)
        for position, one, value, index in zip(sparse, given, values, indices, strict=True):
            results[position] = _finish_sparse(one, value, index, reduction)
    if dense:
        _check_adasum(reduction, "grouped_allreduce")
        with tf.device(device_dense):
            packed = [_compress(compression, tensors[i]) for i in dense]
            reduced = run_group("allreduce", [one for one, _ in packed], name, reduction, ignore_name_scope)
            for position, one, (_, context) in zip(dense, reduced, packed, strict=True):
                results[position] = compression.decompress(one, context)
    return results


@no_autograph
def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: int = AVERAGE,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Reduces `tensor` over the N ranks of the set; each gets its share of the rows, a new tensor. Differentiable.

    Every rank gets dim0 // N rows, in rank order, and the first dim0 % N ranks get one more. `tensor`: dense, with one
    or more dimensions. `op`: Average or Sum; tf.errors.AbortedError for another. Other arguments and errors as for
    allreduce().
    """
    with tf.device(device_dense):
        compressed, context = _compress(compression, tensor)
        reduction = Reduction(op, prescale_factor, postscale_factor, process_set)
        reduced = run("reducescatter", compressed, name, reduction, ignore_name_scope)
        return compression.decompress(reduced, context)


@no_autograph
def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: int = AVERAGE,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Reduces and scatters several tensors together, after every rank has submitted all. Returns a list of shares.

    `tensors`: as many on every rank, of one type, each as for reducescatter(). Other arguments and errors as for
    reducescatter().
    """
    if not tensors:
        return tensors
    with tf.device(device_dense):
        packed = [_compress(compression, tensor) for tensor in tensors]
        reduction = Reduction(op, prescale_factor, postscale_factor, process_set)
        reduced = run_group("reducescatter", [one for one, _ in packed], None, reduction, ignore_name_scope=False)
        return [compression.decompress(one, context) for one, (_, context) in zip(reduced, packed, strict=True)]
