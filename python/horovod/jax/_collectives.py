"""The collectives, for arrays that have values and inside functions that JAX compiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from horovod._common.calls import run_without_tensor, set_id
from horovod._common.native import core
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.jax import _batching, _call, _derivatives  # noqa: F401  the first and the last say what jax needs
from horovod.jax._primitive import run
from horovod.jax._session import host
from horovod.jax._work import Work, as_array, is_traced
from horovod.jax.compression import Compression

__all__ = [
    "allgather",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "join",
    "reducescatter",
]

Average = core.REDUCE_AVERAGE
_SCATTERING = (core.REDUCE_AVERAGE, core.REDUCE_SUM)


def _check_adasum(op: int, process_set: ProcessSet, caller: str) -> None:
    if op == core.REDUCE_ADASUM and process_set.process_set_id != 0:
        raise NotImplementedError(f"hvd.{caller}(): op=Adasum is only supported on the global process set")


def allreduce(
    value: Any,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Reduces `value` over all ranks of the set into a new array of its shape and type. Differentiable.

    Arguments, the same on all ranks but for the array's elements:
        value: an array, or what jax.numpy.asarray() takes, of one shape and type on all ranks. Called inside a function
            that JAX compiles, the operation is part of the program, and runs with it.
        name: what matches the call between ranks; without it an automatic one is used, which counts unnamed calls, or,
            inside functions, how often such calls are traced: all ranks have to do that in the same order.
        compression: Compression.fp16 sends floating-point elements as float16.
        op: Average (the default), Sum, Min, Max, Product or Adasum. The gradient is reduced with the same one; forward
            mode (jax.jvp) is for Average and Sum, and a NotImplementedError for others. Under jax.vmap, Adasum is one
            operation for each example.
        prescale_factor, postscale_factor: every input is multiplied by the first, the result by the second.
        process_set: the ranks that take part, this one among them.

    ValueError: this rank's call is wrong; nothing was sent. HorovodInternalError: ranks disagree on type, shape or
    arguments (all members get it and can go on), a rank is lost, or Horovod is not initialised; in a compiled function
    jax.errors.JaxRuntimeError instead, as raise_failure() says.

    >>> hvd.allreduce(jax.numpy.ones(2), op=hvd.Sum)  # on each of two ranks
    Array([2., 2.], dtype=float32)
    """
    _check_adasum(op, process_set, "allreduce")
    sent, context = compression.compress(as_array(value, "allreduce"))
    work = Work(core.OP_ALLREDUCE, (name,), (), op, float(prescale_factor), float(postscale_factor), process_set)
    return compression.decompress(run(work, [sent])[0], context)


def _reduced_group(
    kind: int,
    caller: str,
    values: Sequence[Any],
    name: str | None,
    compression: Any,
    how: tuple[int, float, float, ProcessSet],
) -> list[Any]:
    """The results for arrays that are reduced together; `how`: op, factors, process set."""
    compressed = [compression.compress(as_array(value, caller)) for value in values]
    if not compressed:
        return []
    op, prescale, postscale, process_set = how
    work = Work(kind, (name,), (len(compressed),), op, float(prescale), float(postscale), process_set)
    reduced = run(work, [array for array, _ in compressed])
    return [compression.decompress(array, context) for array, (_, context) in zip(reduced, compressed, strict=True)]


def grouped_allreduce(
    values: Sequence[Any],
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Reduces several arrays together into a list of new ones: none before every rank has all of them ready.

    Arguments, results and errors as for allreduce(), with a list of arrays, as many on all ranks. Differentiable.
    """
    _check_adasum(op, process_set, "grouped_allreduce")
    how = (op, prescale_factor, postscale_factor, process_set)
    return _reduced_group(core.OP_ALLREDUCE, "grouped_allreduce", values, name, compression, how)


def allgather(value: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """Concatenates the arrays of all ranks along dimension 0, in rank order. Differentiable.

    `value`: an array with one or more dimensions, else ValueError. The first may differ between ranks, but not inside
    compiled functions, where XLA needs to know the shape of the result before; the others and the type are the same on
    all ranks. `name`, `process_set` and errors as for allreduce().
    """
    return run(Work(core.OP_ALLGATHER, (name,), process_set=process_set), [as_array(value, "allgather")])[0]


def grouped_allgather(
    values: Sequence[Any], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Allgathers several arrays together into a list of new ones: none before every rank has all of them ready.

    Arguments and errors as for allgather(), with a list of arrays, as many on all ranks; first dimensions may differ
    within it, and types too. Differentiable.
    """
    arrays = [as_array(value, "grouped_allgather") for value in values]
    return run(Work(core.OP_ALLGATHER, (name,), (len(arrays),), process_set=process_set), arrays) if arrays else []


def broadcast(
    value: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """The array of global rank `root_rank` on every rank. Differentiable.

    `value`: an array of one shape and type on all ranks; only the root's elements matter. `name`, `process_set` and
    errors as for allreduce().
    """
    work = Work(core.OP_BROADCAST, (name,), process_set=process_set, root_rank=root_rank)
    return run(work, [as_array(value, "broadcast")])[0]


def _check_scattering(op: int, caller: str) -> None:
    if op not in _SCATTERING:
        raise ValueError(f"hvd.{caller}(): the only ops are Average and Sum, got op={op!r}")


def reducescatter(
    value: Any,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Reduces `value` over the N ranks of the set; each gets its share of the rows. Differentiable.

    Every rank gets dim0 // N rows, in rank order, and the first dim0 % N ranks get one more. `op`: Average or Sum, else
    ValueError. In compiled functions it has a gradient only where N divides dim0. Other arguments and errors as for
    allreduce().
    """
    _check_scattering(op, "reducescatter")
    sent, context = compression.compress(as_array(value, "reducescatter"))
    work = Work(core.OP_REDUCESCATTER, (name,), (), op, float(prescale_factor), float(postscale_factor), process_set)
    return compression.decompress(run(work, [sent])[0], context)


def grouped_reducescatter(
    values: Sequence[Any],
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """Reduces and scatters several arrays together: a list of this rank's shares. Differentiable.

    None is reduced before every rank has all of them ready. Arguments, results and errors as for reducescatter(), with
    a list of arrays, as many on all ranks.
    """
    caller = "grouped_reducescatter"
    _check_scattering(op, caller)
    return _reduced_group(
        core.OP_REDUCESCATTER, caller, values, name, compression, (op, prescale_factor, postscale_factor, process_set)
    )


def alltoall(
    value: Any,
    splits: Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends the first splits[0] rows to the first rank of the set, the next splits[1] to the second, and so on.

    Returns the rows that came from all ranks, in rank order; with `splits` a pair: the rows, and an int32 array of how
    many came from each rank. Without `splits` every rank gets an equal share, and the call is differentiable and may be
    part of a compiled function; with them ValueError there and under jax.vmap, because the shape of the result needs to
    be known before. `value`: an array with one or more dimensions. `name`, `process_set` and errors as for allreduce().
    """
    array = as_array(value, "alltoall")
    if splits is None:
        return run(Work(core.OP_ALLTOALL, (name,), process_set=process_set), [array])[0]
    if is_traced(splits) or any(map(is_traced, splits)):
        raise ValueError(
            "hvd.alltoall(): splits must be numbers that are known at once: how many rows there will be depends on them"
        )
    if is_traced(array):
        raise ValueError(
            "hvd.alltoall(): splits cannot be used inside a compiled or differentiated function, nor under jax.vmap"
        )
    rows = [int(count) for count in np.asarray(splits).reshape(-1)]
    output, received = host.alltoall(np.asarray(array), rows, name, set_id(process_set, "alltoall"))
    return as_array(output, "alltoall"), as_array(np.array(received, np.int32), "alltoall")


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Waits until all ranks of `process_set` have called it, and for the programs that this thread has started.

    jax.errors.JaxRuntimeError if one of these has failed.
    """
    _call.wait_for_programs()
    run_without_tensor(core.OP_BARRIER, "barrier.noname", set_id(process_set, "barrier"))


def join() -> int:
    """Waits until all ranks have called join(), which a rank does when it has no more data.

    Returns the global rank that called it last. Until then the others may go on with allreduce and barrier on the
    global process set, also in compiled functions: this rank takes part with zeros, and Average still divides by the
    number of all ranks. Waits first for the programs with collectives that this thread has started, and raises
    jax.errors.JaxRuntimeError if one has failed.
    """
    _call.wait_for_programs()
    return run_without_tensor(core.OP_JOIN, "join.noname")
