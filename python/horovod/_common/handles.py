"""Operations in flight, and the table that gives them the small ints of the public API.

A Pending object belongs to the Python thread that made it until it is waited for; the table is used by any thread that
holds the GIL. Neither keeps a lock: every step is one dictionary operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from horovod._common.native import core

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
    """Several operations with a list of results, each made by `finish` from its native handle if that is given.

    All have ended when wait() returns or raises the first error. After KeyboardInterrupt it may be called again.
    """

    __slots__ = ("_finish", "_natives")

    def __init__(self, natives: Sequence[Handle], finish: Callable[[Handle], Any] | None = None) -> None:
        self._natives = natives
        self._finish = finish

    def done(self) -> bool:
        return all(native.done() for native in self._natives)

    def wait(self) -> list[Any]:
        results = core.wait_all(self._natives)
        return results if self._finish is None else [self._finish(native) for native in self._natives]


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

    def release(self, number: int) -> None:
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
