"""A collective as JAX traces it: one primitive, whose derivatives and batches are in _derivatives and _batching.

Where its arrays have values, under jax.grad and jax.vmap too, it runs on the host; in a function that JAX compiles it
becomes a custom call of the program.
"""

from __future__ import annotations

import contextlib
import contextvars
import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from horovod._common.array_types import reducible_code
from horovod._common.native import core
from horovod.common.exceptions import HorovodInternalError
from horovod.jax import _call
from horovod.jax._host import on_host
from horovod.jax._work import KEEPS_SHAPE, REDUCES, Work, is_traced

__all__ = ["bind", "primitive", "run"]

jax: Any = importlib.import_module("jax")  # Any: its types differ between versions
_core: Any = importlib.import_module("jax._src.core")  # of its public names none says whether JAX traces
_mlir: Any = importlib.import_module("jax.interpreters.mlir")

primitive: Any = importlib.import_module("jax.extend.core").Primitive("horovod_collective")
primitive.multiple_results = True

# Not while JAX evaluates a function that it has traced before, with shapes that it has computed then.
_is_called = contextvars.ContextVar("horovod.jax: a collective is being called", default=False)


def bind(work: Work, arrays: Sequence[Any]) -> list[Any]:
    """The results, traced or made now, and behind them the rows where `work.gives_rows`. Requires: all names."""
    before = _is_called.set(True)
    try:
        results: list[Any] = primitive.bind(*arrays, work=work)
    finally:
        _is_called.reset(before)
    return results


def run(work: Work, arrays: Sequence[Any]) -> list[Any]:
    """The results for arrays of JAX. Differentiable.

    ValueError: this rank's call is wrong, and nothing was sent. HorovodInternalError: ranks disagree, a rank is lost,
    or Horovod is not initialised.
    """
    work.check(arrays)
    named = work.with_names()
    try:
        if any(map(is_traced, arrays)) or not _core.trace_state_clean():  # also with arrays from outside
            return bind(named, arrays)[: len(arrays)]
        return on_host(named, arrays)[0]
    except (HorovodInternalError, NotImplementedError, KeyboardInterrupt):
        raise  # it was sent, and what is not implemented are its tangents
    except BaseException:
        work.release_names(named)
        raise


def _refuse_forward_mode(work: Work) -> None:
    if work.is_for_reverse_mode:
        raise NotImplementedError(
            f"hvd.{work.caller}(): op={work.op_name} cannot be differentiated in forward mode (jax.jvp, jax.jacfwd, "
            f"jax.linearize). In reverse mode its gradient is the {work.op_name} of the ranks' gradients, as in "
            "Horovod, which is not the derivative: use jax.grad, jax.vjp or jax.jacrev, or op=Sum or Average"
        )


def _with_values(*arrays: Any, work: Work) -> list[Any]:
    """Under jax.grad and its like, and where JAX evaluates a traced function one operation after another."""
    _refuse_forward_mode(work)
    work.check_session()
    with contextlib.suppress(jax.errors.JaxRuntimeError):  # raise_failure() says it
        _call.wait_for_programs()  # whose calls may have the same names
    results, rows = on_host(work, arrays)
    if rows and not _is_called.get():
        _check_rows(work, arrays, rows)
    return [*results, jax.numpy.asarray(np.array(rows, np.int32))] if work.gives_rows else results


def _check_rows(work: Work, arrays: Sequence[Any], rows: Sequence[Sequence[int]]) -> None:
    """ValueError, on all ranks that have traced the call, if results have other shapes than JAX knows."""
    traced = work.rows or work.equal_rows([array.shape for array in arrays])
    for expected, given in zip(traced, rows, strict=True):
        if tuple(given) != expected:
            raise ValueError(
                f"hvd.{work.caller}(): JAX has traced it for {list(expected)} rows from the ranks, and they gave "
                f"{list(given)}. Under jax.checkpoint, as in a compiled function, the first dimension must be the same "
                "on all ranks; else call it outside of one"
            )


def _check_program(work: Work, arrays: Sequence[Any]) -> None:
    """RuntimeError, ValueError: it cannot be part of a program."""
    problem = _call.problem()
    if problem is not None:
        raise RuntimeError(f"hvd.{work.caller}() cannot be called inside a compiled function: {problem}")
    broken = [name for name in work.full_names() if "\n" in name]
    if broken:
        raise ValueError(f"hvd.{work.caller}(): expected a name without line breaks, got {broken[0]!r}")
    for array in arrays:
        reducible_code(array, work.op if work.kind in REDUCES else core.REDUCE_MIN, work.caller)


def _traced(*avals: Any, work: Work) -> tuple[list[Any], set[Any]]:
    """What XLA has to know before the program runs, and what is known of derivatives before they are computed."""
    if not work.of_tangents:
        _check_program(work, avals)
    shapes = [_shape_of_result(work, i, aval.shape) for i, aval in enumerate(avals)]
    # Not weakly typed, as at once: else the type of what is computed with a number's result differed.
    results = [aval.update(shape=shape, weak_type=False) for aval, shape in zip(avals, shapes, strict=True)]
    if work.gives_rows:
        results.append(jax.core.ShapedArray((len(avals), work.process_set.size() or 1), np.dtype(np.int32)))
    if work.is_for_reverse_mode or _call.problem() is not None:
        return results, set()
    return results, {_call.effect()}


def _shape_of_result(work: Work, position: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """In a compiled function all ranks give equally many rows."""
    if work.kind in KEEPS_SHAPE:
        return shape
    members, rank = work.process_set.size() or 1, work.process_set.rank() or 0
    rows, *rest = shape
    if work.kind == core.OP_ALLGATHER:
        return (rows * members if work.rows is None else sum(work.rows[position]), *rest)
    if work.kind == core.OP_REDUCESCATTER:
        return (rows // members + (rank < rows % members), *rest)
    if rows % members != 0:
        raise ValueError(f"hvd.alltoall(): {rows} rows cannot be divided equally among {members} ranks")
    return shape


def _in_program(ctx: Any, *operands: Any, work: Work) -> list[Any]:
    _refuse_forward_mode(work)
    _check_program(work, ctx.avals_in)
    op, prescale, postscale, process_set_id = work.reduction
    attributes = {
        "kind": np.int32(work.kind),
        "names": "\n".join(work.full_names()),
        "groups": ",".join(map(str, work.groups)),
        "root_rank": np.int32(work.root_rank),
        "reduce_op": np.int32(op),
        "prescale_factor": np.float64(prescale),
        "postscale_factor": np.float64(postscale),
        "process_set_id": np.int32(process_set_id),
        "session": work.session,
    }
    results = _call.lower(ctx, operands, attributes, work.kind in KEEPS_SHAPE)
    if work.gives_rows:
        rows = [[aval.shape[0]] * (work.process_set.size() or 1) for aval in ctx.avals_in]
        results = [*results, _mlir.ir_constant(np.array(rows, np.int32))]
    return results


primitive.def_impl(_with_values)
primitive.def_effectful_abstract_eval(_traced)
_mlir.register_lowering(primitive, _in_program, cacheable=False)
