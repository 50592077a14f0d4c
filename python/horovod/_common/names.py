"""Automatic names of operations.

Ranks match operations by name, so every rank must make up the same ones. Each process set counts for itself: a rank
that is in more sets than another still gives the operations of a common set the same names.
"""

from __future__ import annotations

__all__ = ["AutomaticNames"]


class AutomaticNames:
    """Numbers the operations without a name, from 1, in each process set. Used by any thread that holds the GIL."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def make(self, prefix: str, process_set_id: int) -> str:
        """The next name. No call stands between reading a count and writing it, where another thread could come in."""
        counts = self._counts
        if process_set_id not in counts:
            counts.setdefault(process_set_id, 0)
        count = counts[process_set_id] + 1
        counts[process_set_id] = count
        return f"{prefix}.noname.{count}"

    def give_back(self, process_set_id: int) -> None:
        """The operation was refused: the next one gets its number, as on the ranks where it was not tried."""
        self._counts[process_set_id] -= 1

    def forget(self, process_set_id: int) -> None:
        """The process set is removed: the next one with its id begins at 1 on its members, old and new."""
        self._counts.pop(process_set_id, None)

    def restart(self) -> None:
        """After shutdown: the names of the next session begin anew."""
        self._counts.clear()
