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
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.jax import _call
from horovod.jax._session import host

__all__ = ["Work", "as_array", "is_traced", "run"]

jax: Any = importlib.import_module("jax")  # Any: its types differ between versions
_core: Any = importlib.import_module("jax._src.core")  # of its public names none says whether JAX traces

_OPS = (
    core.REDUCE_AVERAGE,
    core.REDUCE_SUM,
    core.REDUCE_ADASUM,
    core.REDUCE_MIN,
    core.REDUCE_MAX,
    core.REDUCE_PRODUCT,
)
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

    def check(self) -> None:
        """ValueError for a call that this rank cannot make, before anything is sent, or becomes part of a program."""
        set_id(self.process_set, self.caller)  # a ValueError for a set that is not registered
        if self.op not in _OPS:
            raise ValueError(f"hvd.{self.caller}(): expected one of hvd.Average, Sum, ... as op, got {self.op!r}")
        if not core.is_initialized():
            return  # the core says so
        self.process_set.rank()  # a ValueError for a rank that is no member
        if self.kind == core.OP_BROADCAST and self.root_rank not in (self.process_set.ranks or ()):
            raise ValueError(
                f"hvd.broadcast(): expected a rank of {self.process_set} as root_rank, got {self.root_rank!r}"
            )

    def only(self, positions: Sequence[int]) -> Work:
        """The same for the arrays at these positions."""
        if not self.groups:
            return dataclasses.replace(self, names=tuple(self.names[i] for i in positions))
        owners = [number for number, count in enumerate(self.groups) for _ in range(count)]
        left = [(number, sum(owners[i] == number for i in positions)) for number in range(len(self.groups))]
        kept = [(self.names[number], count) for number, count in left if count > 0]
        names, groups = zip(*kept, strict=True)
        return dataclasses.replace(self, names=names, groups=groups)

    def gradient(self, kind: int, **changes: Any) -> Work:
        """Work on the gradients of this one's results."""
        names = tuple(None if name is None else f"{name}.gradient" for name in self.names)
        return dataclasses.replace(self, kind=kind, names=names, root_rank=-1, **changes)

    def with_names(self) -> Work:
        """The same under names that all are given; automatic ones count calls, the same on all ranks."""
        if None not in self.names:
            return self
        process_set_id = set_id(self.process_set, self.caller)
        made = [name or host.names.make("horovod.jax", process_set_id) for name in self.names]
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


def _is_tracing(arrays: Sequence[Any]) -> bool:
    """Whether the call is part of a function that JAX traces, also with arrays from outside that have values."""
    return any(map(is_traced, arrays)) or not _core.trace_state_clean()


def run(work: Work, arrays: Sequence[Any]) -> list[Any]:
    """The results for arrays of JAX. Differentiable.

    ValueError: this rank's call is wrong, and nothing was sent. HorovodInternalError: ranks disagree, a rank is lost,
    or Horovod is not initialised.
    """
    if _is_tracing(arrays):
        return list(_differentiable(work, *arrays))
    return _run(work, arrays)[0]


def _run(work: Work, arrays: Sequence[Any]) -> tuple[list[Any], list[int] | None]:
    """The results, and how many rows each member gave to an allgather of arrays that have values."""
    work.check()
    named = work.with_names()
    try:
        if _is_tracing(arrays):
            return _in_program(named, arrays), None
        return _on_host(named, arrays)
    except (HorovodInternalError, KeyboardInterrupt):
        raise  # it was sent
    except BaseException:
        work.release_names(named)
        raise


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _differentiable(work: Work, *arrays: Any) -> tuple[Any, ...]:
    return tuple(_run(work, arrays)[0])


def _forward(work: Work, *arrays: Any) -> tuple[tuple[Any, ...], tuple[int, int]]:
    """The results, and which rows of an allgather's are this rank's. Differentiated itself for second derivatives."""
    rows = arrays[0].shape[0] if arrays[0].ndim > 0 else 0
    rank, members = work.process_set.rank() or 0, work.process_set.size() or 1
    if not _is_tracing(arrays):
        results, given = _run(work, arrays)
        return tuple(results), (rank * rows if given is None else sum(given[:rank]), rows)
    if work.kind == core.OP_REDUCESCATTER and rows % members != 0:
        raise ValueError(
            f"hvd.reducescatter(): in a compiled function its gradient needs rows that {members} ranks can share "
            f"equally, got {rows}"
        )
    return tuple(run(work, arrays)), (rank * rows, rows)


def _backward(work: Work, own: tuple[int, int], grads: tuple[Any, ...]) -> tuple[Any, ...]:
    """Gradients as horovod.torch defines them. Integers have none, on no rank."""
    some = [i for i, grad in enumerate(grads) if grad.dtype != jax.dtypes.float0]
    made = list(grads)
    if some:
        reduced = _GRADIENTS[work.kind](work.only(some), own, [grads[i] for i in some])
        for i, grad in zip(some, reduced, strict=True):
            made[i] = grad
    return tuple(made)


_differentiable.defvjp(_forward, _backward)


def _average(work: Work) -> Work:
    return work.gradient(core.OP_ALLREDUCE, op=core.REDUCE_AVERAGE)


def _of_allreduce(work: Work, _: Any, grads: list[Any]) -> list[Any]:
    return run(work.gradient(core.OP_ALLREDUCE), grads)


def _of_broadcast(work: Work, _: Any, grads: list[Any]) -> list[Any]:
    averages = run(_average(work), grads)
    return averages if core.rank() == work.root_rank else [jax.numpy.zeros_like(grad) for grad in averages]


def _of_allgather(work: Work, own: tuple[int, int], grads: list[Any]) -> list[Any]:
    first, rows = own
    (average,) = run(_average(work), grads)
    return [average[first : first + rows]]


def _of_alltoall(work: Work, _: Any, grads: list[Any]) -> list[Any]:
    return run(work.gradient(core.OP_ALLTOALL), grads)


def _of_reducescatter(work: Work, _: Any, grads: list[Any]) -> list[Any]:
    members = (work.process_set.size() or 1) if work.op == core.REDUCE_SUM else 1
    factor = members * work.prescale * work.postscale
    gather = work.gradient(core.OP_ALLGATHER, prescale=1.0, postscale=1.0)
    return run(gather, [grad * factor for grad in grads])


_GRADIENTS: dict[int, Callable[[Work, tuple[int, int], list[Any]], list[Any]]] = {
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
    members, rank = work.process_set.size() or 1, work.process_set.rank() or 0
    rows, *rest = shape
    if work.kind == core.OP_ALLGATHER:
        return (rows * members, *rest)
    if work.kind == core.OP_REDUCESCATTER:
        return (rows // members + (rank < rows % members), *rest)
    if rows % members != 0:
        raise ValueError(f"hvd.alltoall(): {rows} rows cannot be divided equally among {members} ranks")
    return shape


def _on_host(work: Work, arrays: Sequence[Any]) -> tuple[list[Any], list[int] | None]:
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
        return [_like(array, made) for array, made in zip(arrays, own, strict=True)], None
    ((array,), (name,)) = arrays, names
    given = np.asarray(array)
    if work.kind == core.OP_ALLGATHER:
        gathered, rows = host.allgather_with_rows(given, name, process_set_id)
        return [_like(array, gathered)], rows
    if work.kind == core.OP_ALLTOALL:
        return [_like(array, host.alltoall(given, (), name, process_set_id)[0])], None
    share = host.reducescatter(given, name, work.op, process_set_id, work.prescale, work.postscale)
    made = np.asarray(jax.dlpack.from_dlpack(share)) if given.dtype.name == "bfloat16" else np.from_dlpack(share)
    return [_like(array, made)], None  # numpy's lacks bfloat16


def _like(array: Any, made: Any) -> Any:
    """The result as an array of JAX, on the device that a program has chosen for the argument."""
    if getattr(array, "committed", False) and len(array.devices()) == 1:
        return jax.device_put(made, array.sharding)
    return jax.numpy.asarray(made)
