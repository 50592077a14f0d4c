"""Automatic names of operations.

Ranks match operations by name, so every rank must make up the same ones. Each process set counts for itself: a rank
that is in more sets than another still gives the operations of a common set the same names. A join is a meeting of all
ranks, before which some made calls that others did not make: in the global set the count begins anew with it, and names
carry the number of joins, so that none equals one that is pending from before.
"""

from __future__ import annotations

from horovod._common.native import core

__all__ = ["AutomaticNames"]

_GLOBAL = 0


def _key(process_set_id: int) -> tuple[int, int]:
    """What is counted: a process set, and the joins that its ranks have met at."""
    return process_set_id, core.joins() if process_set_id == _GLOBAL else 0


class AutomaticNames:
    """Numbers the operations without a name, from 1, in each process set and after each join.

    Used by any thread that holds the GIL.
    """

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[tuple[int, int], int] = {}

    def make(self, prefix: str, process_set_id: int) -> str:
        """The next name. No call stands between reading a count and writing it, where another thread could come in."""
        counts = self._counts
        key = _key(process_set_id)
        joins = key[1]
        if key not in counts:
            counts.pop((process_set_id, joins - 1), None)
            counts.setdefault(key, 0)
        count = counts[key] + 1
        counts[key] = count
        return f"{prefix}.noname.join{joins}.{count}" if joins else f"{prefix}.noname.{count}"

    def release(self, process_set_id: int) -> None:
        """The operation was refused: the next one gets its number, as on the ranks where it was not tried."""
        self._counts[_key(process_set_id)] -= 1

    def forget(self, process_set_id: int) -> None:
        """The process set is removed: the next one with its id begins at 1 on its members, old and new."""
        self._counts.pop((process_set_id, 0), None)

    def restart(self) -> None:
        """After shutdown: the names of the next session begin anew."""
        self._counts.clear()
