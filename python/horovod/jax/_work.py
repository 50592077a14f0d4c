"""What one call of a collective does: to which arrays, under which names, among which ranks."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from horovod._common import calls
from horovod._common.native import core
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.jax._session import host

__all__ = ["KEEPS_SHAPE", "REDUCES", "Rows", "Work", "as_array", "is_traced"]

jax: Any = importlib.import_module("jax")  # Any: its types differ between versions

KEEPS_SHAPE = (core.OP_ALLREDUCE, core.OP_BROADCAST)
REDUCES = (core.OP_ALLREDUCE, core.OP_REDUCESCATTER)
Rows = tuple[tuple[int, ...], ...]  # how many each member gives, for each array

_TANGENT = ".tangent"
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

    `names`: of the arrays, or, where they go in `groups` of so many each, of the groups; None: an automatic one
    whenever it runs, or is traced. `op` to `root_rank` are as in _common.calls.Reduction and Call.
    """

    kind: int
    names: tuple[str | None, ...]
    groups: tuple[int, ...] = ()
    op: int = core.REDUCE_SUM
    prescale: float = 1.0
    postscale: float = 1.0
    process_set: ProcessSet = global_process_set
    root_rank: int = -1
    session: str = ""  # in which it was made or traced
    of_tangents: bool = False  # its arrays are derivatives of those of another call
    rows: Rows | None = None  # of an allgather of tangents: those of the arrays

    @property
    def caller(self) -> str:
        return ("grouped_" if self.groups else "") + _PREFIXES[self.kind]

    @property
    def set_id(self) -> int:
        return calls.set_id(self.process_set, self.caller)

    @property
    def reduction(self) -> tuple[int, float, float, int]:
        return self.op, self.prescale, self.postscale, self.set_id

    @property
    def op_name(self) -> str:
        return calls.OP_NAMES[self.op]

    @property
    def gives_rows(self) -> bool:
        """Whether the rows of all members, an array of int32, are a result behind the others."""
        return self.kind == core.OP_ALLGATHER and self.rows is None

    @property
    def is_for_reverse_mode(self) -> bool:
        """Whether the tangents are only good for being transposed: see _derivatives."""
        return (
            self.of_tangents
            and self.kind == core.OP_ALLREDUCE
            and self.op not in (core.REDUCE_AVERAGE, core.REDUCE_SUM)
        )

    def equal_rows(self, shapes: Sequence[Any]) -> Rows:
        """What members give where JAX has traced the call of arrays of these shapes: equally many."""
        return tuple((shape[0],) * (self.process_set.size() or 1) for shape in shapes)

    def check(self, arrays: Sequence[Any]) -> None:
        """Before anything is sent, or becomes part of a program. ValueError for a call that this rank cannot make,
        HorovodInternalError where Horovod is not initialised: in a function JAX would say so, or what traces it would
        miss the number of ranks."""
        if self.kind not in KEEPS_SHAPE and any(array.ndim == 0 for array in arrays):
            raise ValueError(f"hvd.{self.caller}(): a value without dimensions has no rows")
        _ = self.set_id  # a ValueError for a set that is not registered
        if self.op not in calls.OP_NAMES:
            raise ValueError(f"hvd.{self.caller}(): expected one of hvd.Average, Sum, ... as op, got {self.op!r}")
        if not core.is_initialized():
            raise HorovodInternalError("Horovod has not been initialized; use hvd.init().")  # as the core says it
        self.process_set.rank()  # a ValueError for a rank that is no member
        if self.kind == core.OP_BROADCAST and self.root_rank not in (self.process_set.ranks or ()):
            raise ValueError(
                f"hvd.broadcast(): expected a rank of {self.process_set} as root_rank, got {self.root_rank!r}"
            )

    def check_session(self) -> None:
        """RuntimeError if the session has ended: ranks may be others now, and names count anew."""
        if core.is_initialized() and self.session != str(core.epoch()):
            raise RuntimeError(
                f"hvd.{self.caller}() was traced in an earlier session of Horovod, which has ended: JAX has to trace "
                "it again"
            )

    def only(self, positions: Sequence[int]) -> Work:
        """The same for the arrays at these positions."""
        rows = None if self.rows is None else tuple(self.rows[i] for i in positions)
        if not self.groups:
            return dataclasses.replace(self, names=tuple(self.names[i] for i in positions), rows=rows)
        owners = [number for number, count in enumerate(self.groups) for _ in range(count)]
        left = [(number, sum(owners[i] == number for i in positions)) for number in range(len(self.groups))]
        kept = [(self.names[number], count) for number, count in left if count > 0]
        names, groups = zip(*kept, strict=True)
        return dataclasses.replace(self, names=names, groups=groups, rows=rows)

    def tangents(self, rows: Rows | None) -> Work:
        """The same done to derivatives of the arrays; `rows` as there."""
        names = tuple(f"{name}{_TANGENT}" for name in self.names)
        return dataclasses.replace(self, names=names, of_tangents=True, rows=rows)

    def gradient(self, kind: int, **changes: Any) -> Work:
        """Work on the gradients of the results of a call whose arrays are tangents."""
        names = tuple(f"{str(name).removesuffix(_TANGENT)}.gradient" for name in self.names)
        changes = {"root_rank": -1, "of_tangents": False, "rows": None, **changes}
        return dataclasses.replace(self, kind=kind, names=names, **changes)

    def with_names(self) -> Work:
        """The same under names that all are given, in this session; automatic ones count calls, alike on all ranks."""
        session = str(core.epoch()) if core.is_initialized() else ""
        names = self.names
        if None in names:
            names = tuple(name or host.names.make("horovod.jax", self.set_id) for name in names)
        return dataclasses.replace(self, names=names, session=session)

    def release_names(self, named: Work) -> None:
        """After a refused call: the next one gets its automatic names, as on ranks that did not try it."""
        for given, made in reversed(list(zip(self.names, named.names, strict=True))):
            if given is None and made is not None:
                host.names.release(self.set_id, made)

    def full_names(self) -> list[str]:
        """Of the arrays, as ranks negotiate them."""
        names = [f"{self.caller}.{name}" for name in self.names]
        if not self.groups:
            return names
        groups = zip(names, self.groups, strict=True)
        return [member for name, count in groups for member in core.group_member_names(name, count)]


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
