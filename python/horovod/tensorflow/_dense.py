"""The native ops on dense tensors, with names; no compression, no sparse tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow._native import MPI_LIB, OPS
from horovod.tensorflow._session import basics, set_id
from horovod.tensorflow._xla import XLA_OPS
from horovod.tensorflow._xla_support import in_xla
from horovod.tensorflow.util import default_name, inner_variable, plain

SUM = basics.Sum
_MAY_HOLD_OPS = ("If", "Case", "While", "PartitionedCall", "StatefulPartitionedCall")


def _ops() -> Any:
    """The ops for the graph that is being traced."""
    return XLA_OPS if in_xla() else MPI_LIB


def _name_source(tensor: Any, converted: Any) -> Any:
    return tensor if isinstance(tensor, tf.Variable) or hasattr(tensor, "path") else converted


def _prepare(prefix: str, name: str | None, tensor: Any) -> tuple[Any, str | None]:
    """The tensor as one, and the name of its op."""
    converted = tf.convert_to_tensor(inner_variable(tensor))
    return converted, name or default_name(prefix, [_name_source(tensor, converted)])


def _prepare_group(prefix: str, name: str | None, tensors: Sequence[Any]) -> tuple[list[Any], str | None]:
    converted = [tf.convert_to_tensor(inner_variable(tensor)) for tensor in tensors]
    sources = [_name_source(tensor, made) for tensor, made in zip(tensors, converted, strict=True)]
    return converted, name or default_name(prefix, sources)


@plain
def _allreduce(
    tensor: Any,
    name: str | None = None,
    op: int = SUM,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Reduces a dense tensor over all ranks of the set."""
    tensor, name = _prepare("HorovodAllreduce", name, tensor)
    return _ops().horovod_allreduce(
        tensor,
        name=name,
        reduce_op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        ignore_name_scope=ignore_name_scope,
        process_set_id=set_id(process_set, "allreduce"),
    )


@plain
def _grouped_allreduce(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = SUM,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Reduces dense tensors of one type together."""
    if not tensors:
        return []
    tensors, name = _prepare_group("HorovodGroupedAllreduce", name, tensors)
    return list(
        _ops().horovod_grouped_allreduce(
            tensors,
            name=name,
            reduce_op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            ignore_name_scope=ignore_name_scope,
            process_set_id=set_id(process_set, "grouped_allreduce"),
        )
    )


@plain
def allreduce_at_once(
    tensors: Sequence[Any],
    names: Sequence[str],
    op: int,
    prescale_factor: float,
    postscale_factor: float,
    ignore_name_scope: bool,
    process_set: ProcessSet,
) -> list[Any]:
    """In a graph that XLA compiles: allreduces of dense tensors under names of their own, in one call."""
    return XLA_OPS.allreduce_each(
        [tf.convert_to_tensor(inner_variable(tensor)) for tensor in tensors],
        names,
        reduce_op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        ignore_name_scope=ignore_name_scope,
        process_set_id=set_id(process_set, "allreduce"),
    )


@plain
def _reducescatter(
    tensor: Any,
    name: str | None = None,
    op: int = SUM,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Reduces a dense tensor and leaves each rank its share of the rows."""
    tensor, name = _prepare("HorovodReducescatter", name, tensor)
    return _ops().horovod_reducescatter(
        tensor,
        name=name,
        reduce_op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        ignore_name_scope=ignore_name_scope,
        process_set_id=set_id(process_set, "reducescatter"),
    )


@plain
def _grouped_reducescatter(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = SUM,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """The same for dense tensors of one type together."""
    if not tensors:
        return []
    tensors, name = _prepare_group("HorovodGroupedReducescatter", name, tensors)
    return list(
        _ops().horovod_grouped_reducescatter(
            tensors,
            name=name,
            reduce_op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            ignore_name_scope=ignore_name_scope,
            process_set_id=set_id(process_set, "grouped_reducescatter"),
        )
    )


@plain
def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The rows of all ranks of the set, in rank order. First dimensions may differ. Differentiable."""
    tensor, name = _prepare("HorovodAllgather", name, tensor)
    return _ops().horovod_allgather(
        tensor, name=name, ignore_name_scope=ignore_name_scope, process_set_id=set_id(process_set, "allgather")
    )


@plain
def allgather_of(tensor: Any, rows: int, ignore_name_scope: bool, process_set: ProcessSet) -> Any:
    """In a graph that XLA compiles: the allgather of `rows` rows in all, of which ranks may have different numbers."""
    tensor, name = _prepare("HorovodAllgather", None, tensor)
    return XLA_OPS.horovod_allgather(
        tensor, name, rows, ignore_name_scope=ignore_name_scope, process_set_id=set_id(process_set, "allgather")
    )


@plain
def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Allgather of tensors of one type together."""
    if not tensors:
        return []
    tensors, name = _prepare_group("HorovodGroupedAllgather", name, tensors)
    return list(
        _ops().horovod_grouped_allgather(
            tensors,
            name=name,
            ignore_name_scope=ignore_name_scope,
            process_set_id=set_id(process_set, "grouped_allgather"),
        )
    )


@plain
def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The tensor of global rank `root_rank`, on all ranks of the set. Differentiable."""
    tensor, name = _prepare("HorovodBroadcast", name, tensor)
    return _ops().horovod_broadcast(
        tensor,
        name=name,
        root_rank=root_rank,
        ignore_name_scope=ignore_name_scope,
        process_set_id=set_id(process_set, "broadcast"),
    )


@plain
def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends `splits[i]` rows to rank i of the set, equal shares without splits; gives what came from all.

    With splits the result is a pair: the rows, and how many came from each rank (int32).
    """
    tensor, name = _prepare("HorovodAlltoall", name, tensor)
    wanted = tf.convert_to_tensor(splits if splits is not None else [], dtype=tf.int32)
    output, received = _ops().horovod_alltoall(
        tensor,
        splits=wanted,
        name=name,
        ignore_name_scope=ignore_name_scope,
        process_set_id=set_id(process_set, "alltoall"),
    )
    return output if splits is None else (output, received)


@plain
def join() -> Any:
    """Says that this rank has no more data; when all have, gives the rank that was the last to say so (int32).

    Meanwhile the others may go on with allreduce on the global set, to which this rank contributes zeros. In a
    tf.function it comes after the collectives that stand before it there.
    """
    before: list[Any] = []
    if tf.inside_function() and not in_xla():
        graph = tf.compat.v1.get_default_graph()
        before = [op for op in graph.get_operations() if op.type in OPS or op.type in _MAY_HOLD_OPS]
    with tf.control_dependencies(before):
        return _ops().horovod_join()


# What the session says when the op runs, not when the graph is built.


@plain
def size_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """The number of ranks of a process set, as an int32 scalar."""
    return _ops().horovod_size(process_set_id=process_set_id, name=name)


@plain
def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """1 on members of the process set, 0 on other ranks, a negative number where there is no such set."""
    return _ops().horovod_process_set_included(process_set_id=process_set_id, name=name)


@plain
def rank_op(name: str | None = None) -> Any:
    """This process' rank, as an int32 scalar."""
    return _ops().horovod_rank(name=name)


@plain
def local_rank_op(name: str | None = None) -> Any:
    """This process' rank among those of its host, as an int32 scalar."""
    return _ops().horovod_local_rank(name=name)


@plain
def local_size_op(name: str | None = None) -> Any:
    """The number of ranks on this host, as an int32 scalar."""
    return _ops().horovod_local_size(name=name)
