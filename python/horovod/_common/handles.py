"""Operations in flight, and the table that gives them the small ints of the public API.

A Pending object belongs to the Python thread that made it until it is waited for; the table is used by any thread that
holds the GIL. Neither keeps a lock: every step is one dictionary operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from horovod._core import Handle, HandleGroup

__all__ = ["HandleTable", "Pending", "PendingCall", "PendingGroup", "wait_for_all"]


class Pending(Protocol):
    """An operation in flight: done() says whether it has ended; wait() returns its result or raises its error.

    Most are a native Handle, whose result is the tensor that it wrote, or a HandleGroup.
    """

    def done(self) -> bool: ...
    def wait(self) -> Any: ...


def wait_for_all(waits: Iterable[Callable[[], object]]) -> None:
    """Takes all, calls all, then raises the first error: until all have ended, their memory may still be written to.

    `waits` may start what they wait for as they are taken. Where one is refused, those before it are waited for: their
    names are free again.
    """
    error: BaseException | None = None
    taken: list[Callable[[], object]] = []
    try:
        for wait in waits:
            taken.append(wait)
    except BaseException as refused:
        error = refused
    for wait in taken:
        try:
            wait()
        except Exception as raised:
            error = error or raised
    if error is not None:
        raise error


class PendingCall:
    """An operation whose result `finish` makes from its native handle, after it has succeeded."""

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
    """A group with a list of results, each of which `finish` makes from its native handle.

    All have ended when wait() returns or raises the first error. After KeyboardInterrupt it may be called again.
    """

    __slots__ = ("_finish", "_natives")

    def __init__(self, natives: HandleGroup, finish: Callable[[Handle], Any]) -> None:
        self._natives = natives
        self._finish = finish

    def done(self) -> bool:
        return self._natives.done()

    def wait(self) -> list[Any]:
        self._natives.wait()
        return [self._finish(native) for native in self._natives.handles()]


class HandleTable:
    """Int handles of operations that were not synchronised yet. They count up from 1, in one order on all ranks."""

    __slots__ = ("_next", "pending")

    def __init__(self) -> None:
        self.pending: dict[int, Pending] = {}
        self._next = 1

    def next_number(self) -> int:
        """The next handle, which is taken before the operation is submitted."""
        number = self._next
        self._next = number + 1
        return number

    def release(self, number: int) -> None:
        """After a refused operation: the next one gets its number, as on ranks that did not try it."""
        if self._next == number + 1:
            self._next = number

    def restart_numbers(self) -> None:
        """After shutdown(): the next session counts from 1 again, so that its ranks agree."""
        self._next = 1

    def poll(self, handle: int) -> bool:
        """Whether synchronize(handle) would not block. ValueError for a handle that is not outstanding."""
        pending = self.pending.get(handle)
        if pending is None:
            raise ValueError(f"handle {handle!r} is unknown or was synchronised already")
        return pending.done()

    def synchronize(self, handle: int) -> Any:
        """Waits and returns the result; None for a handle that is not outstanding. An error uses the handle up too."""
        pending = self.pending.pop(handle, None)
        if pending is None:
            return None
        try:
            return pending.wait()
        except KeyboardInterrupt:
            self.pending[handle] = pending  # still in flight: it may be waited for again
            raise
