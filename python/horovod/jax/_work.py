"""One call of a collective: by the host where arrays have values, by a custom call in functions that JAX traces."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from horovod._common.arrays import reducible_code
from horovod._common.calls import set_id
from horovod._common.native import core
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.jax import _call
from horovod.jax._session import host

__all__ = ["Work", "as_array", "is_traced", "run"]

jax: Any = importlib.import_module("jax")  # Any: its types differ between versions

_PREFIXES = {
    core.OP_ALLREDUCE: "allreduce",
    core.OP_ALLGATHER: "allgather",
    core.OP_BROADCAST: "broadcast",
    core.OP_ALLTOALL: "alltoall",
    core.OP_REDUCESCATTER: "reducescatter",
}


@dataclass(frozen=True)
class Work:
    """What is done to arrays, and under which names.

    `names`: of the arrays, or, where they are reduced in `groups` of so many each, of the groups; None: an automatic
    one whenever it runs, or is traced. The rest is as in _common.calls.Reduction and Call.
    """

    kind: int
    names: tuple[str | None, ...]
    groups: tuple[int, ...] = ()
    op: int = core.REDUCE_SUM
    prescale: float = 1.0
    postscale: float = 1.0
    process_set: ProcessSet = global_process_set
    root_rank: int = -1

    @property
    def caller(self) -> str:
        return ("grouped_" if self.groups else "") + _PREFIXES[self.kind]

    @property
    def reduction(self) -> tuple[int, float, float, int]:
        return self.op, self.prescale, self.postscale, set_id(self.process_set, self.caller)

    def gradient(self, kind: int, **changes: Any) -> Work:
        """Work on the gradients of this one's results."""
        names = tuple(None if name is None else f"{name}.gradient" for name in self.names)
        return dataclasses.replace(self, kind=kind, names=names, root_rank=-1, **changes)

    def with_names(self) -> Work:
        """The same under names that all are given; automatic ones count calls, the same on all ranks."""
        if None not in self.names:
            return self
        process_set_id = set_id(self.process_set, self.caller)
        made = [name or host.names.make("jax", process_set_id) for name in self.names]
        return dataclasses.replace(self, names=tuple(made))

    def release_names(self, named: Work) -> None:
        """After a refused call: the next one gets its automatic names, as on ranks that did not try it."""
        for given, made in reversed(list(zip(self.names, named.names, strict=True))):
            if given is None and made is not None:
                host.names.release(set_id(self.process_set), made)


def as_array(value: Any, caller: str) -> Any:
    """The value as an array of JAX, traced or not. ValueError for what is none."""
    if isinstance(value, jax.Array):
        return value
    try:
        return jax.numpy.asarray(value)
    except TypeError as error:
        raise ValueError(f"hvd.{caller}(): expected an array or a number, got {type(value).__name__}") from error


def is_traced(array: Any) -> bool:
    """Whether the array has no value yet: it is one of a function that JAX compiles or transforms."""
    return isinstance(array, jax.core.Tracer)


def run(work: Work, arrays: Sequence[Any]) -> list[Any]:
    """The results for arrays of JAX. Differentiable.

    ValueError: this rank's call is wrong, and nothing was sent. HorovodInternalError: ranks disagree, a rank is lost,
    or Horovod is not initialised.
    """
    if any(map(is_traced, arrays)):
        return list(_differentiable(work, *arrays))
    return _run(work, arrays)


def _run(work: Work, arrays: Sequence[Any]) -> list[Any]:
    named = work.with_names()
    try:
        if any(map(is_traced, arrays)):
            return _in_program(named, arrays)
        return _on_host(named, arrays)
    except ValueError:
        work.release_names(named)
        raise


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _differentiable(work: Work, *arrays: Any) -> tuple[Any, ...]:
    return tuple(_run(work, arrays))


def _forward(work: Work, *arrays: Any) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """Is differentiated itself for second derivatives."""
    return tuple(run(work, arrays)), tuple(array.shape[0] if array.ndim > 0 else 0 for array in arrays)


def _backward(work: Work, rows: tuple[int, ...], grads: tuple[Any, ...]) -> tuple[Any, ...]:
    """Gradients as horovod.torch defines them. Integers have none, on no rank."""
    if any(grad.dtype == jax.dtypes.float0 for grad in grads):
        raise ValueError(f"hvd.{work.caller}(): integers have no gradient; use jax.lax.stop_gradient() on them")
    return tuple(_GRADIENTS[work.kind](work, rows, list(grads)))


_differentiable.defvjp(_forward, _backward)


def _average(work: Work) -> Work:
    return work.gradient(core.OP_ALLREDUCE, op=core.REDUCE_AVERAGE)


def _of_allreduce(work: Work, _: Any, grads: list[Any]) -> list[Any]:
    return run(work.gradient(core.OP_ALLREDUCE), grads)


def _of_broadcast(work: Work, _: Any, grads: list[Any]) -> list[Any]:
    averages = run(_average(work), grads)
    return averages if core.rank() == work.root_rank else [jax.numpy.zeros_like(grad) for grad in averages]


def _of_allgather(work: Work, rows: Any, grads: list[Any]) -> list[Any]:
    """Each rank's own rows: all ranks have given equally many, else there is no gradient."""
    first = (work.process_set.rank() or 0) * rows[0]
    (average,) = run(_average(work), grads)
    return [average[first : first + rows[0]]]


def _of_alltoall(work: Work, _: Any, grads: list[Any]) -> list[Any]:
    return run(work.gradient(core.OP_ALLTOALL), grads)


def _of_reducescatter(work: Work, _: Any, grads: list[Any]) -> list[Any]:
    members = (work.process_set.size() or 1) if work.op == core.REDUCE_SUM else 1
    factor = members * work.prescale * work.postscale
    gather = work.gradient(core.OP_ALLGATHER, prescale=1.0, postscale=1.0)
    return run(gather, [grad * factor for grad in grads])


_GRADIENTS: dict[int, Callable[[Work, Any, list[Any]], list[Any]]] = {
    core.OP_ALLREDUCE: _of_allreduce,
    core.OP_BROADCAST: _of_broadcast,
    core.OP_ALLGATHER: _of_allgather,
    core.OP_ALLTOALL: _of_alltoall,
    core.OP_REDUCESCATTER: _of_reducescatter,
}


def _in_program(work: Work, arrays: Sequence[Any]) -> list[Any]:
    """Arrays of a function that is being traced; what it returns is made whenever the program runs."""
    problem = _call.problem()
    if problem is not None:
        raise RuntimeError(f"hvd.{work.caller}() cannot be called inside a compiled function: {problem}")
    for array in arrays:
        reducible_code(array, core.REDUCE_MIN if work.kind not in _REDUCING else work.op, work.caller)
    shapes = [_shape_of_result(work, array) for array in arrays]
    prefix = work.caller
    if work.groups:
        names = [
            f"{prefix}.{name}_{i + 1}of{count}"
            for name, count in zip(work.names, work.groups, strict=True)
            for i in range(count)
        ]
    else:
        names = [f"{prefix}.{name}" for name in work.names]
    return _call.collective(work.kind, arrays, names, work.reduction, work.groups, work.root_rank, shapes)


_REDUCING = (core.OP_ALLREDUCE, core.OP_REDUCESCATTER)


def _shape_of_result(work: Work, array: Any) -> tuple[int, ...]:
    """What XLA has to know before the program runs: so in a compiled function all ranks give equally many rows."""
    shape = tuple(array.shape)
    if work.kind in (core.OP_ALLREDUCE, core.OP_BROADCAST):
        return shape
    if not shape:
        raise ValueError(f"hvd.{work.caller}(): a value without dimensions has no rows")
    members, rank = work.process_set.size() or 1, work.process_set.rank()
    if rank is None:
        raise ValueError(f"hvd.{work.caller}(): this rank is not in {work.process_set}")
    rows, *rest = shape
    if work.kind == core.OP_ALLGATHER:
        return (rows * members, *rest)
    if work.kind == core.OP_REDUCESCATTER:
        return (rows // members + (rank < rows % members), *rest)
    if rows % members != 0:
        raise ValueError(f"hvd.alltoall(): {rows} rows cannot be divided equally among {members} ranks")
    return shape


def _on_host(work: Work, arrays: Sequence[Any]) -> list[Any]:
    names, reduction = work.names, work.reduction
    *_, process_set_id = reduction
    if work.kind in (core.OP_ALLREDUCE, core.OP_BROADCAST):
        own = [np.array(array, order="C") for array in arrays]  # JAX's do not change
        if work.kind == core.OP_BROADCAST:
            host.broadcast_(own, names, work.root_rank, process_set_id)
        elif work.groups:
            rest = iter(own)
            groups = {str(name): [next(rest) for _ in range(n)] for name, n in zip(names, work.groups, strict=True)}
            host.grouped_allreduce_(groups, *reduction)
        else:
            host.allreduce_(own, names, *reduction)
        return [_like(array, made) for array, made in zip(arrays, own, strict=True)]
    ((array,), (name,)) = arrays, names
    given = np.asarray(array)
    if work.kind == core.OP_ALLGATHER:
        return [_like(array, host.allgather(given, name, process_set_id))]
    if work.kind == core.OP_ALLTOALL:
        return [_like(array, host.alltoall(given, (), name, process_set_id)[0])]
    share = host.reducescatter(given, name, work.op, process_set_id, work.prescale, work.postscale)
    return [_like(array, np.asarray(jax.dlpack.from_dlpack(share)))]  # numpy's lacks bfloat16


def _like(array: Any, made: Any) -> Any:
    """The result as an array of JAX, on the device that a program has chosen for the argument."""
    if getattr(array, "committed", False) and len(array.devices()) == 1:
        return jax.device_put(made, array.sharding)
    return jax.numpy.asarray(made)
