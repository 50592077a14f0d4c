"""The gradients of the collectives. Importing this registers them, with TensorFlow and for the ops of _xla.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod._common.calls import Reduction, no_reduction, unscaled
from horovod.common.process_sets import ProcessSet, _temp_process_set_object
from horovod.tensorflow._dense import allgather, alltoall, run, run_group
from horovod.tensorflow._session import basics, set_size
from horovod.tensorflow._xla import GRADIENTS
from horovod.tensorflow._xla_support import in_xla

Op = Any  # a tf.Operation, or what eager mode has in its place


def _set_of(op: Op) -> ProcessSet:
    return _temp_process_set_object(int(op.get_attr("process_set_id")))


def _as_op(op: Op) -> tuple[Reduction, bool]:
    """The op's own reduction, and whether it ignores name scopes: the last arguments of run() for its gradient."""
    factors = op.get_attr("prescale_factor"), op.get_attr("postscale_factor")
    return Reduction(op.get_attr("reduce_op"), *factors, _set_of(op)), op.get_attr("ignore_name_scope")


def _averaging(op: Op) -> tuple[Reduction, bool]:
    return unscaled(basics.Average, _set_of(op)), op.get_attr("ignore_name_scope")


def _gathering(op: Op) -> tuple[Reduction, bool]:
    return no_reduction(_set_of(op)), op.get_attr("ignore_name_scope")


def _of_one_type(op: Op, grads: Sequence[Any]) -> list[Any]:
    """The gradients of a group's results, cast to the group's type: later ops may return another float type."""
    dtype = op.inputs[0].dtype
    return [grad if grad.dtype == dtype else tf.cast(grad, dtype) for grad in grads]


def _of_allreduce(op: Op, grad: Any) -> Any:
    return run("allreduce", grad, None, *_as_op(op))


def _of_grouped_allreduce(op: Op, *grads: Any) -> Any:
    return run_group("allreduce", _of_one_type(op, grads), None, *_as_op(op))


def _own_rows(gathered: Any, given: Any, process_set: ProcessSet) -> Any:
    """This rank's rows of `gathered`, the result of an allgather of `given`."""
    if in_xla():  # where all ranks have the same number of rows
        rows = (given.shape.as_list() or [1])[0]
        return tf.reshape(gathered[process_set.rank() * rows :][:rows], given.shape)
    rows = tf.shape(given)[0]
    rows_of_all = allgather(tf.reshape(rows, [1]), process_set=process_set)
    start = tf.reduce_sum(rows_of_all[: process_set.rank()])
    return gathered[start : start + rows]


def _of_allgather(op: Op, grad: Any) -> Any:
    return _own_rows(run("allreduce", grad, None, *_averaging(op)), op.inputs[0], _set_of(op))


def _of_grouped_allgather(op: Op, *grads: Any) -> Any:
    reduced = run_group("allreduce", _of_one_type(op, grads), None, *_averaging(op))
    return [_own_rows(one, given, _set_of(op)) for one, given in zip(reduced, op.inputs, strict=True)]


def _of_broadcast(op: Op, grad: Any) -> Any:
    reduced = run("allreduce", grad, None, *_averaging(op))
    # All ranks have the same nodes: gradients that follow are named after their number.
    return reduced * (1 if basics.rank() == op.get_attr("root_rank") else 0)


def _of_alltoall(op: Op, grad: Any, *_: Any) -> Any:
    scope = op.get_attr("ignore_name_scope")
    if in_xla():  # equal shares
        return alltoall(grad, ignore_name_scope=scope, process_set=_set_of(op))
    given, splits = op.inputs
    back, _ = alltoall(grad, splits=op.outputs[1], ignore_name_scope=scope, process_set=_set_of(op))
    if splits.shape.num_elements() != 0:  # rows beyond the splits were not sent
        back = tf.concat([back, tf.zeros_like(given[tf.shape(back)[0] :])], 0)
    return [back, None]


def _scaled_like_reducescatter(op: Op, grad: Any) -> Any:
    factor = float(op.get_attr("prescale_factor")) * float(op.get_attr("postscale_factor"))
    if op.get_attr("reduce_op") == basics.Sum:
        factor *= set_size(_set_of(op), "gradient of reducescatter")
    return grad if factor == 1.0 else grad * tf.cast(factor, grad.dtype)


def _of_reducescatter(op: Op, grad: Any) -> Any:
    return _gather_shares(op, _scaled_like_reducescatter(op, grad), op.inputs[0])


def _gather_shares(op: Op, share: Any, given: Any) -> Any:
    """The rows of all ranks of the result of a reducescatter of `given`."""
    # In XLA shares need not be equal, but together they have as many rows as `given`.
    rows = {"rows": given.shape[0]} if in_xla() else {}
    return run("allgather", share, None, *_gathering(op), **rows)


def _of_grouped_reducescatter(op: Op, *grads: Any) -> Any:
    scaled = [_scaled_like_reducescatter(op, grad) for grad in _of_one_type(op, grads)]
    if in_xla():
        return [_gather_shares(op, one, given) for one, given in zip(scaled, op.inputs, strict=True)]
    return run_group("allgather", scaled, None, *_gathering(op))


GRADIENTS |= {
    "HorovodAllreduce": _of_allreduce,
    "HorovodGroupedAllreduce": _of_grouped_allreduce,
    "HorovodAllgather": _of_allgather,
    "HorovodGroupedAllgather": _of_grouped_allgather,
    "HorovodBroadcast": _of_broadcast,
    "HorovodAlltoall": _of_alltoall,
    "HorovodReducescatter": _of_reducescatter,
    "HorovodGroupedReducescatter": _of_grouped_reducescatter,
}

for _name, _gradient in GRADIENTS.items():
    tf.RegisterGradient(_name)(_gradient)
for _name in ("Join", "Size", "ProcessSetIncluded", "LocalSize", "Rank", "LocalRank"):
    tf.no_gradient(f"Horovod{_name}")
