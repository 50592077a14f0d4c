"""Ctrl-C in sessions of a framework whose own code keeps the main thread from handling signals."""

from __future__ import annotations

import functools
import os
import threading

from horovod._common.interrupt import InterruptWatch
from horovod._common.session import basics

__all__ = ["watch_interrupts"]


class _SessionWatch:
    """Has an InterruptWatch from a session's init() to its shutdown(). One for all frameworks of the process."""

    def __init__(self) -> None:
        self._watch: InterruptWatch | None = None
        os.register_at_fork(after_in_child=self._after_fork)
        basics._add_hooks(self._after_init, self._after_shutdown)
        if basics.is_initialized():  # through another framework's module
            self._after_init(False)

    def _after_init(self, _: bool) -> None:
        """Only on the main thread: no other may set a wakeup descriptor, so there Ctrl-C waits for the operation."""
        if self._watch is None and threading.current_thread() is threading.main_thread():
            self._watch = InterruptWatch()

    def _after_shutdown(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    def _after_fork(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close_in_child()


@functools.cache
def watch_interrupts() -> object:
    """From now on, Ctrl-C also ends waits of a main thread inside TensorFlow, JAX or MXNet. Called at their import."""
    return _SessionWatch()
