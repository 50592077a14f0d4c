"""Automatic names of operations.

Ranks match operations by name, so every rank must generate the same ones. Each process set has a count of its own: a
rank that is in more sets than another still gives the operations of a common set the same names. Before a join, some
ranks make calls that others, which have joined already, do not make. So the global set counts from 1 after each join,
and its names contain the number of joins: no new name equals one that is still pending.
"""

from __future__ import annotations

from weakref import WeakSet

from horovod._common.native import core
from horovod._common.session import follow_sessions
from horovod.common.process_sets import _on_removal

__all__ = ["AutomaticNames"]

_GLOBAL = 0


def _key(process_set_id: int) -> tuple[int, int]:
    """The key of a count: the process set, and how often its ranks have joined."""
    return process_set_id, core.joins() if process_set_id == _GLOBAL else 0


class AutomaticNames:
    """Numbers the operations without a name, from 1, in each process set and after each join.

    By itself it begins anew with each session. Used by any thread that holds the GIL.
    """

    __slots__ = ("__weakref__", "_counts")

    def __init__(self) -> None:
        self._counts: dict[tuple[int, int], int] = {}
        follow_sessions(self)
        _all.add(self)

    def make(self, prefix: str, process_set_id: int) -> str:
        """The next name. No call stands between reading a count and writing it, so no other thread runs in between."""
        counts = self._counts
        key = _key(process_set_id)
        joins = key[1]
        if key not in counts:
            counts.pop((process_set_id, joins - 1), None)
            counts.setdefault(key, 0)
        count = counts[key] + 1
        counts[key] = count
        return f"{prefix}.noname.join{joins}.{count}" if joins else f"{prefix}.noname.{count}"

    def release(self, process_set_id: int, name: str) -> None:
        """After a refused operation: the next one gets its name, as on ranks that did not try it.

        Unless another thread has taken the next one since: no two operations have one name. No call stands between the
        last look and writing.
        """
        counts = self._counts
        key = _key(process_set_id)
        count = counts.get(key)
        if name.endswith(f".{count}") and key in counts and counts[key] == count:
            counts[key] = count - 1

    def forget(self, process_set_id: int) -> None:
        """After the removal of a process set: a new set with the same id counts from 1 on all its members."""
        self._counts.pop((process_set_id, 0), None)

    def on_session_start(self) -> None:
        """Each session counts from 1."""
        self._counts.clear()


_all: WeakSet[AutomaticNames] = WeakSet()


def _forget_everywhere(process_set_id: int) -> None:
    for names in list(_all):
        names.forget(process_set_id)


_on_removal(_forget_everywhere)
