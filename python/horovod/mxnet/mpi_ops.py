"""The collectives. Each is an operation of MXNet's engine, which runs it when its arrays are ready.

What changes or makes arrays of a known shape returns at once, and later uses of these arrays wait for it by themselves;
what makes arrays whose shape the other ranks decide waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from horovod._common import session as _common_session
from horovod._common.calls import Call, set_id
from horovod._common.native import core
from horovod._common.session import *  # noqa: F403
from horovod._common.session import basics as _basics  # noqa: F401  programs that used Horovod reach it here
from horovod._common.session import handle_average_backwards_compatibility
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.mxnet._arrays import check_arrays
from horovod.mxnet._library import mx
from horovod.mxnet._pushed import Reduction, run, run_late
from horovod.mxnet._session import shutdown  # noqa: F401  instead of the common one

__all__ = [
    "allgather",
    "allreduce",
    "allreduce_",
    "alltoall",
    "broadcast",
    "broadcast_",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_reducescatter",
    "reducescatter",
]
__all__ += _common_session.__all__

Average = core.REDUCE_AVERAGE


def _moves(process_set: ProcessSet, caller: str) -> Reduction:
    return core.REDUCE_SUM, 1.0, 1.0, set_id(process_set, caller)


def _check_rows(tensors: Sequence[Any], caller: str) -> None:
    for tensor in tensors:
        if tensor.ndim == 0:
            raise ValueError(f"hvd.{caller}(): an array without dimensions has no rows; pass one of shape (1,)")


def _allreduce(
    tensors: Sequence[Any], average: bool | None, name: str | None, priority: int, factors: tuple[float, float],
    process_set: ProcessSet, op: int | None, in_place: bool, is_group: bool,
) -> Any:  # fmt: skip
    if not tensors:
        return tensors
    caller = ("grouped_" if is_group else "") + "allreduce" + ("_" if in_place else "")
    reduce_op = handle_average_backwards_compatibility(op, average)
    if reduce_op == core.REDUCE_ADASUM:
        raise AssertionError(f"hvd.{caller}(): op=Adasum is not supported with MXNet")
    reduction = (reduce_op, float(factors[0]), float(factors[1]), set_id(process_set, caller))
    return run(
        Call(core.OP_ALLREDUCE, "allreduce"), name, reduction, tensors, in_place, caller, priority, is_group
    )


def allreduce(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> Any:
    """Reduces `tensor` over all ranks of the set into a new array, which is returned before it has its values.

    Arguments, the same on all ranks but for the array's elements:
        tensor: an NDArray of one shape and type on all ranks; float16, float32, float64, uint8, int8, int32 or int64.
        average: the old spelling of `op`: True is Average, False is Sum. Deprecated.
        name: what matches the call between ranks; without it an automatic one is used, which counts such calls: all
            ranks have to make them in the same order.
        priority: MXNet's engine begins what is ready with the highest number first.
        prescale_factor, postscale_factor: every input is multiplied by the first, the result by the second.
        process_set: the ranks that take part, this one among them.
        op: Average (the default), Sum, Min, Max or Product.

    AssertionError: `tensor` is no NDArray, or op is Adasum. ValueError: its type does not travel, it is sparse, or the
    process set is not registered. mxnet.MXNetError where the result is waited for, as in asnumpy() and wait_to_read():
    this rank's call is wrong, ranks disagree, a rank is lost, or Horovod is not initialised.

    >>> hvd.allreduce(mx.nd.ones(2), op=hvd.Sum).asnumpy()  # on each of two ranks
    array([2., 2.], dtype=float32)
    """
    factors = (prescale_factor, postscale_factor)
    return _allreduce([tensor], average, name, priority, factors, process_set, op, False, False)[0]


def allreduce_(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> Any:
    """Reduces `tensor` in place and returns it, before it has its values. Arguments and errors as for allreduce()."""
    factors = (prescale_factor, postscale_factor)
    return _allreduce([tensor], average, name, priority, factors, process_set, op, True, False)[0]


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> Any:
    """Reduces several arrays together into a list of new ones: none before every rank has all of them ready.

    `tensors`: a list of arrays in one context, as many on all ranks; an empty one is returned as it is. Other arguments
    and errors as for allreduce().
    """
    factors = (prescale_factor, postscale_factor)
    return _allreduce(tensors, average, name, priority, factors, process_set, op, False, True)


def grouped_allreduce_(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> Any:
    """Reduces several arrays together in place and returns them. Arguments and errors as for grouped_allreduce()."""
    factors = (prescale_factor, postscale_factor)
    return _allreduce(tensors, average, name, priority, factors, process_set, op, True, True)


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """A new array with the elements of global rank `root_rank`'s `tensor`, returned before it has them.

    `tensor`: an NDArray of one shape and type on all ranks; only the root's elements matter. Other arguments and errors
    as for allreduce().
    """
    call = Call(core.OP_BROADCAST, "broadcast", int(root_rank))
    return run(call, name, _moves(process_set, "broadcast"), [tensor], False, "broadcast", priority)[0]


def broadcast_(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Overwrites `tensor` with global rank `root_rank`'s and returns it. Arguments and errors as for broadcast()."""
    call = Call(core.OP_BROADCAST, "broadcast", int(root_rank))
    return run(call, name, _moves(process_set, "broadcast_"), [tensor], True, "broadcast_", priority)[0]


def allgather(
    tensor: Any, name: str | None = None, priority: int = 0, process_set: ProcessSet = global_process_set
) -> Any:
    """The arrays of all ranks, concatenated along dimension 0 in rank order. Waits for the other ranks.

    `tensor`: an NDArray whose first dimension may differ between ranks, and nothing else. Other arguments as for
    allreduce(); its errors are raised here.
    """
    call = Call(core.OP_ALLGATHER, "allgather")
    return run_late(call, name, _moves(process_set, "allgather"), [tensor], "allgather", priority)[0][0]


def grouped_allgather(
    tensors: Sequence[Any], name: str | None = None, priority: int = 0, process_set: ProcessSet = global_process_set
) -> Any:
    """Gathers several arrays together: a list, each as of allgather(). Arguments and errors as for that."""
    if not tensors:
        return tensors
    call = Call(core.OP_ALLGATHER, "allgather")
    reduction = _moves(process_set, "grouped_allgather")
    return run_late(call, name, reduction, tensors, "grouped_allgather", priority, True)[0]


def _splits(splits: Any) -> list[int]:
    rows = splits.asnumpy() if isinstance(splits, mx.nd.NDArray) else np.asarray(splits)
    if isinstance(splits, mx.nd.NDArray) and rows.dtype != np.int32:
        raise ValueError(f"hvd.alltoall(): splits must be of type int32, not {rows.dtype.name}")
    if rows.ndim != 1:
        raise ValueError(f"hvd.alltoall(): splits must have one dimension, not shape {rows.shape}")
    if rows.size > 0 and rows.dtype.kind not in "iu":
        raise ValueError(f"hvd.alltoall(): splits must be whole numbers, got {splits!r}")
    return [int(count) for count in rows]


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends the first splits[0] rows to the first rank of the set, the next splits[1] to the second, and so on.

    Waits for the other ranks. Returns the rows that came from all ranks, in rank order; with `splits`, an NDArray of
    int32, or whole numbers of numpy or in a list, one for each rank, a pair: the rows, and an int32 array of how many
    came from each rank. Without them every rank gets an equal share. Other arguments as for allreduce(); its errors are
    raised here, and ValueError for splits of another type or shape.
    """
    call = Call(core.OP_ALLTOALL, "alltoall", splits=() if splits is None else _splits(splits))
    (made,), rows = run_late(call, name, _moves(process_set, "alltoall"), [tensor], "alltoall", priority)
    if splits is None:
        return made
    received = mx.nd.array(rows, dtype="int32")
    return made, received.as_np_ndarray() if isinstance(tensor, mx.np.ndarray) else received


def _reducescatter(
    tensors: Sequence[Any], op: int, name: str | None, priority: int, process_set: ProcessSet,
    factors: tuple[float, float], caller: str,
) -> Any:  # fmt: skip
    if not tensors:
        return tensors
    if op not in (core.REDUCE_AVERAGE, core.REDUCE_SUM):
        raise AssertionError(f"hvd.{caller}(): the only ops are Average and Sum, got op={op!r}")
    check_arrays(tensors, caller)
    _check_rows(tensors, caller)
    reduction = (op, float(factors[0]), float(factors[1]), set_id(process_set, caller))
    call = Call(core.OP_REDUCESCATTER, "reducescatter")
    return run_late(call, name, reduction, tensors, caller, priority, caller.startswith("grouped_"))[0]


def reducescatter(
    tensor: Any,
    op: int = Average,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Reduces `tensor` over the N ranks of the set; each gets its share of the rows. Waits for the other ranks.

    Every rank gets dim0 // N rows, in rank order, and the first dim0 % N ranks get one more. `op`: Average or Sum, else
    AssertionError. ValueError for an array without dimensions. Other arguments as for allreduce(); its errors are
    raised here.
    """
    factors = (prescale_factor, postscale_factor)
    return _reducescatter([tensor], op, name, priority, process_set, factors, "reducescatter")[0]


def grouped_reducescatter(
    tensors: Sequence[Any],
    op: int = Average,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Reduces and scatters several arrays together: a list. Arguments and errors as for reducescatter()."""
    factors = (prescale_factor, postscale_factor)
    return _reducescatter(tensors, op, name, priority, process_set, factors, "grouped_reducescatter")
