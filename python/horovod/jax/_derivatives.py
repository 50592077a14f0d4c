"""Derivatives of collectives: forward mode applies the same collective to tangents, reverse mode is horovod.torch's.

Reverse mode is not always the transpose of forward mode: Horovod averages the gradients of allgather and broadcast,
multiplies those of a reducescatter's sum, and reduces those of Min, Max, Product and Adasum with the same op, which
have no forward mode therefore.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from horovod._common.native import core
from horovod.jax._primitive import bind, primitive, run
from horovod.jax._work import Rows, Work, as_array, is_traced

jax: Any = importlib.import_module("jax")  # Any: its types differ between versions
_ad: Any = importlib.import_module("jax.interpreters.ad")


def _is_zero(tangent: Any) -> bool:
    """Integers have none, and what does not depend on what is differentiated."""
    return type(tangent) is _ad.Zero or getattr(tangent, "dtype", None) == jax.dtypes.float0  # numbers have no dtype


def _rows_of(work: Work, arrays: Sequence[Any], results: Sequence[Any]) -> Rows | None:
    """How many rows each member has given to an allgather."""
    if not work.gives_rows:
        return work.rows
    given = results[len(arrays)]
    if is_traced(given):
        return work.equal_rows([array.shape for array in arrays])
    return tuple(map(tuple, np.asarray(given).tolist()))


def _forward(arrays: Sequence[Any], tangents: Sequence[Any], *, work: Work) -> tuple[list[Any], list[Any]]:
    results = bind(work, arrays)
    derivatives = [_ad.Zero(jax.typeof(result).to_tangent_aval()) for result in results]
    some = [i for i, tangent in enumerate(tangents) if not _is_zero(tangent)]
    if some:
        own = [as_array(tangents[i], work.caller) for i in some]
        moved = bind(work.tangents(_rows_of(work, arrays, results)).only(some), own)
        for i, derivative in zip(some, moved, strict=True):
            derivatives[i] = derivative
    return results, derivatives


def _backward(gradients: Sequence[Any], *tangents: Any, work: Work) -> list[Any]:
    """Gradients of the tangents of a call, or, in jax.linear_transpose, of its arrays, from those of its results."""
    gradients = gradients[: len(tangents)]
    if all(type(gradient) is _ad.Zero for gradient in gradients):
        return [None] * len(tangents)
    work.check_session()
    shapes = [tangent.aval.shape for tangent in tangents]
    own = [as_array(_ad.instantiate_zeros(gradient), work.caller) for gradient in gradients]
    return _GRADIENTS[work.kind](work, shapes, own)


def _average(work: Work, gradients: Sequence[Any]) -> list[Any]:
    return run(work.gradient(core.OP_ALLREDUCE, op=core.REDUCE_AVERAGE), gradients)


def _of_allreduce(work: Work, _: Any, gradients: list[Any]) -> list[Any]:
    return run(work.gradient(core.OP_ALLREDUCE), gradients)


def _of_broadcast(work: Work, _: Any, gradients: list[Any]) -> list[Any]:
    averages = _average(work, gradients)
    # Zeros that depend on the averages: all ranks reduce in the derivative of this one, too.
    is_root = core.rank() == work.root_rank
    return averages if is_root else [jax.numpy.where(False, one, jax.numpy.zeros_like(one)) for one in averages]


def _of_allgather(work: Work, shapes: Sequence[Any], gradients: list[Any]) -> list[Any]:
    """Of which each rank keeps its rows."""
    rank = work.process_set.rank() or 0
    firsts = [(sum(given[:rank]), given[rank]) for given in work.rows or work.equal_rows(shapes)]
    averages = zip(_average(work, gradients), firsts, strict=True)
    return [average[first : first + rows] for average, (first, rows) in averages]


def _of_alltoall(work: Work, _: Any, gradients: list[Any]) -> list[Any]:
    return run(work.gradient(core.OP_ALLTOALL), gradients)


def _of_reducescatter(work: Work, shapes: Sequence[Any], gradients: list[Any]) -> list[Any]:
    members = (work.process_set.size() or 1) if work.op == core.REDUCE_SUM else 1
    factor = members * work.prescale * work.postscale
    gather = work.gradient(core.OP_ALLGATHER, prescale=1.0, postscale=1.0)
    gathered = run(gather, [gradient * factor for gradient in gradients])
    for made, shape in zip(gathered, shapes, strict=True):
        if made.shape != shape:  # not what was scattered: other ranks' shares are larger or smaller
            raise ValueError(
                f"hvd.{work.caller}(): in a compiled function its gradient needs rows that "
                f"{work.process_set.size()} ranks can share equally, got {shape[0]}"
            )
    return gathered


_GRADIENTS: dict[int, Callable[[Work, Sequence[Any], list[Any]], list[Any]]] = {
    core.OP_ALLREDUCE: _of_allreduce,
    core.OP_BROADCAST: _of_broadcast,
    core.OP_ALLGATHER: _of_allgather,
    core.OP_ALLTOALL: _of_alltoall,
    core.OP_REDUCESCATTER: _of_reducescatter,
}

_ad.primitive_jvps[primitive] = _forward
_ad.primitive_transposes[primitive] = _backward
