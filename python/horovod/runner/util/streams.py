"""A pipe between threads of one process."""

from __future__ import annotations

import threading
from typing import TypeVar

__all__ = ["Pipe"]

_Text = TypeVar("_Text", str, bytes)


class Pipe:
    """Carries text, or bytes, from writers to readers. It holds one piece: a write waits until it was read."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._content: str | bytes | None = None
        self._closed = False

    def write(self, buf: _Text) -> None:
        """Waits until what was written before has been read, and leaves `buf` there. RuntimeError once it is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._content is None or self._closed)
            if self._closed:
                raise RuntimeError("the pipe is closed")
            if buf:
                self._content = buf
                self._changed.notify_all()

    def read(self, length: int = -1) -> str | bytes | None:
        """Waits for content and returns what is there, at most `length` of it unless that is negative.

        None: it is closed, and nothing is left.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._content is not None or self._closed)
            content = self._content
            if content is None:
                return None
            if length < 0:
                length = len(content)
            self._content = content[length:] or None
            self._changed.notify_all()
            return content[:length]

    def flush(self) -> None:
        """Does nothing: what was written is there for who reads."""

    def close(self) -> None:
        """Who waits to write gets an error; who waits to read gets what is left, and then None."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
