"""Operations in flight, and the table that gives them the small ints of the public API.

A Pending object belongs to the Python thread that made it until it is waited for; the table is used by any thread that
holds the GIL. Neither keeps a lock: every step is one dictionary operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from horovod._core import Handle

__all__ = ["HandleTable", "Pending", "PendingCall", "PendingGroup"]


class Pending(Protocol):
    """Something that ends: done() tells whether, wait() blocks for its result or raises its error.

    Most are a native Handle itself, which gives the tensor that it wrote.
    """

    def done(self) -> bool: ...
    def wait(self) -> Any: ...


class PendingCall:
    """An operation whose result is made by `finish` from its native handle, once it ended well."""

    __slots__ = ("_finish", "_native")

    def __init__(self, native: Handle, finish: Callable[[Handle], Any]) -> None:
        self._native = native
        self._finish = finish

    def done(self) -> bool:
        return self._native.done()

    def wait(self) -> Any:
        self._native.wait()
        return self._finish(self._native)


class PendingGroup:
    """Several operations with a list of results. All have ended when wait() returns or raises the first error.

    wait() may be called again after KeyboardInterrupt and goes on with the first member that it has no answer from.
    """

    __slots__ = ("_error", "_members", "_results")

    def __init__(self, members: Sequence[Pending]) -> None:
        self._members = members
        self._results: list[Any] = []
        self._error: Exception | None = None

    def done(self) -> bool:
        return all(member.done() for member in self._members[len(self._results) :])

    def wait(self) -> list[Any]:
        for member in self._members[len(self._results) :]:
            result = None
            try:
                result = member.wait()
            except Exception as error:
                self._error = self._error or error
            self._results.append(result)
        if self._error is not None:
            raise self._error
        return self._results


class HandleTable:
    """Int handles of operations that were not synchronised yet. The numbers rise from 1, in one order on all ranks."""

    __slots__ = ("_next", "pending")

    def __init__(self) -> None:
        self.pending: dict[int, Pending] = {}
        self._next = 1

    def next_number(self) -> int:
        """The next handle. Taken before the operation is submitted, because automatic names contain it."""
        number = self._next
        self._next = number + 1
        return number

    def give_back(self, number: int) -> None:
        """The operation was refused: the next one gets its number, as on the ranks where it was not tried."""
        if self._next == number + 1:
            self._next = number

    def restart_numbers(self) -> None:
        """After shutdown: automatic names start again, so that they agree between ranks of the next session."""
        self._next = 1

    def poll(self, handle: int) -> bool:
        """Whether synchronize(handle) would not block. ValueError for a handle that is not outstanding."""
        pending = self.pending.get(handle)
        if pending is None:
            raise ValueError(f"handle {handle!r} is unknown or was synchronised already")
        return pending.done()

    def synchronize(self, handle: int) -> Any:
        """Waits and gives the result; None for a handle that is not outstanding. Consumes the handle, also on error."""
        pending = self.pending.pop(handle, None)
        if pending is None:
            return None
        try:
            return pending.wait()
        except KeyboardInterrupt:
            self.pending[handle] = pending  # still in flight: it may be waited for again
            raise
