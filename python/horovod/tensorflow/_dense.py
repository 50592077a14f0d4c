"""The native ops on dense tensors, with names; without compression and sparse tensors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod._common.calls import Reduction, no_reduction
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow._native import MPI_LIB, OPS
from horovod.tensorflow._session import basics, set_id
from horovod.tensorflow._xla import XLA_OPS
from horovod.tensorflow._xla_support import in_xla
from horovod.tensorflow.util import default_name, inner_variable, no_autograph

SUM = basics.Sum
_MAY_HOLD_OPS = ("If", "Case", "While", "PartitionedCall", "StatefulPartitionedCall")


def _ops() -> Any:
    """The ops for the graph that is being traced."""
    return XLA_OPS if in_xla() else MPI_LIB


def _name_source(tensor: Any, converted: Any) -> Any:
    return tensor if isinstance(tensor, tf.Variable) or hasattr(tensor, "path") else converted


def _prepared(prefix: str, name: str | None, tensors: Sequence[Any]) -> tuple[list[Any], str | None]:
    """The converted tensors, and the name of their op."""
    converted = [tf.convert_to_tensor(inner_variable(tensor)) for tensor in tensors]
    sources = [_name_source(tensor, made) for tensor, made in zip(tensors, converted, strict=True)]
    return converted, name or default_name(prefix, sources)


def _attributes(caller: str, reduction: Reduction, ignore_name_scope: bool) -> dict[str, Any]:
    """The attributes of an op; those of the reduction only if it reduces."""
    common = {"ignore_name_scope": ignore_name_scope, "process_set_id": set_id(reduction.process_set, caller)}
    if "reduce" not in caller:
        return common
    factors = {"prescale_factor": reduction.prescale, "postscale_factor": reduction.postscale}
    return {"reduce_op": reduction.op, **factors, **common}


def _op_of(
    caller: str, given: Any, name: str | None, reduction: Reduction, ignore_name_scope: bool, **others: Any
) -> Any:
    attributes = _attributes(caller, reduction, ignore_name_scope)
    try:
        return getattr(_ops(), f"horovod_{caller}")(given, name=name, **others, **attributes)
    except tf.errors.InvalidArgumentError as error:
        # It says with the whole definition of the op that this does not take the tensor's type: in a sentence instead.
        found = re.search(r"of (\w+) is not in the list of allowed values: (.+)", str(error))
        if not found:
            raise
        words = f"{caller}: tensor type {found[1]} is not supported; use tf.cast() to one of {found[2].strip()}"
        raise tf.errors.InvalidArgumentError(None, None, words) from None


@no_autograph
def run(
    caller: str, tensor: Any, name: str | None, reduction: Reduction, ignore_name_scope: bool, **others: Any
) -> Any:
    """Makes the op of a collective for one tensor: `reducescatter` is HorovodReducescatter."""
    (tensor,), name = _prepared(f"Horovod{caller.title()}", name, [tensor])
    return _op_of(caller, tensor, name, reduction, ignore_name_scope, **others)


@no_autograph
def run_group(
    kind: str, tensors: Sequence[Any], name: str | None, reduction: Reduction, ignore_name_scope: bool
) -> list[Any]:
    """Makes the op of a collective for tensors of one type that are negotiated together."""
    if not tensors:
        return []
    tensors, name = _prepared(f"HorovodGrouped{kind.title()}", name, tensors)
    return list(_op_of(f"grouped_{kind}", tensors, name, reduction, ignore_name_scope))


@no_autograph
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
    reduction = Reduction(op, prescale_factor, postscale_factor, process_set)
    return run("allreduce", tensor, name, reduction, ignore_name_scope)


@no_autograph
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
    reduction = Reduction(op, prescale_factor, postscale_factor, process_set)
    return run_group("allreduce", tensors, name, reduction, ignore_name_scope)


@no_autograph
def allreduce_at_once(
    tensors: Sequence[Any], names: Sequence[str], reduction: Reduction, ignore_name_scope: bool
) -> list[Any]:
    """In a graph that XLA compiles: allreduces of dense tensors under names of their own, in one call."""
    converted = [tf.convert_to_tensor(inner_variable(tensor)) for tensor in tensors]
    return XLA_OPS.allreduce_each(converted, names, **_attributes("allreduce", reduction, ignore_name_scope))


@no_autograph
def _reducescatter(
    tensor: Any,
    name: str | None = None,
    op: int = SUM,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Reduces a dense tensor; each rank gets its share of the rows."""
    reduction = Reduction(op, prescale_factor, postscale_factor, process_set)
    return run("reducescatter", tensor, name, reduction, ignore_name_scope)


@no_autograph
def _grouped_reducescatter(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = SUM,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """Reduces and scatters dense tensors of one type together."""
    reduction = Reduction(op, prescale_factor, postscale_factor, process_set)
    return run_group("reducescatter", tensors, name, reduction, ignore_name_scope)


@no_autograph
def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Concatenates the tensors of all ranks along dimension 0, in rank order, into a new tensor. Differentiable.

    `tensor`: whatever tf.convert_to_tensor takes, of any type but strings, with one type on all ranks and one shape but
    for the first dimension. `name`, `ignore_name_scope`, `process_set` and errors as for allreduce().
    """
    return run("allgather", tensor, name, no_reduction(process_set), ignore_name_scope)


@no_autograph
def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Allgathers several tensors together, after every rank has submitted all. Returns a list in the same order.

    `tensors`: as many on every rank, of one type, each as for allgather(). Other arguments and errors as for
    allgather().
    """
    return run_group("allgather", tensors, name, no_reduction(process_set), ignore_name_scope)


@no_autograph
def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns a new tensor with the values of global rank `root_rank` on all ranks of the set. Differentiable.

    `tensor`: of one shape and type on all ranks; only the root's elements matter. `root_rank`: a rank of the job that
    is a member of the set. `name`, `ignore_name_scope`, `process_set` and errors as for allreduce().
    """
    return run("broadcast", tensor, name, no_reduction(process_set), ignore_name_scope, root_rank=root_rank)


@no_autograph
def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends the first splits[0] rows to the first rank of the set, the next splits[1] to the second, and so on.

    Returns the rows that came from all ranks, in rank order; with `splits` a pair: the rows, and an int32 tensor of how
    many came from each rank. Differentiable.

    `tensor`: with one or more dimensions; all but the first, and the type, are the same on all ranks. `splits`: int32,
    a number of rows for each rank of the set, together no more than there are; without it every rank gets an equal
    share. `name`, `ignore_name_scope`, `process_set` and errors as for allreduce().
    """
    wanted = tf.convert_to_tensor(splits if splits is not None else [], dtype=tf.int32)
    output, received = run("alltoall", tensor, name, no_reduction(process_set), ignore_name_scope, splits=wanted)
    return output if splits is None else (output, received)


@no_autograph
def join() -> Any:
    """Waits until all ranks have called join(), which a rank does when it has no more data.

    Returns the global rank that called it last, an int32 scalar. Until then the others may go on with allreduce on the
    global set, in which this rank takes part with zeros. In a tf.function it runs after the collectives before it.
    Errors as for allreduce().
    """
    before: list[Any] = []
    if tf.inside_function() and not in_xla():
        graph = tf.compat.v1.get_default_graph()
        before = [op for op in graph.get_operations() if op.type in OPS or op.type in _MAY_HOLD_OPS]
    with tf.control_dependencies(before):
        return _ops().horovod_join()


# Values of the session at the time when the op runs, not when the graph is built.


@no_autograph
def size_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """The number of ranks of the process set `process_set_id`, an int32 scalar. `name`: of the node."""
    return _ops().horovod_size(process_set_id=process_set_id, name=name)


@no_autograph
def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """1 on members of the process set `process_set_id`, 0 on other ranks, negative if there is no such set.

    An int32 scalar. `name`: of the node.
    """
    return _ops().horovod_process_set_included(process_set_id=process_set_id, name=name)


@no_autograph
def rank_op(name: str | None = None) -> Any:
    """The rank of this process, an int32 scalar. `name`: of the node."""
    return _ops().horovod_rank(name=name)


@no_autograph
def local_rank_op(name: str | None = None) -> Any:
    """The rank of this process among those of its host, an int32 scalar. `name`: of the node."""
    return _ops().horovod_local_rank(name=name)


@no_autograph
def local_size_op(name: str | None = None) -> Any:
    """The number of ranks on this host, an int32 scalar. `name`: of the node."""
    return _ops().horovod_local_size(name=name)
