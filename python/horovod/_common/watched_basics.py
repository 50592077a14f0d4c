"""The session of a framework whose own code keeps the main thread from seeing signals."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

from horovod._common.interrupt import InterruptWatch
from horovod.common.basics import HorovodBasics
from horovod.common.process_sets import ProcessSet

__all__ = ["WatchedBasics"]


class WatchedBasics(HorovodBasics):
    """The session, with Ctrl-C for a main thread that waits inside TensorFlow or JAX."""

    def __init__(self, pkg_path: str | None = None, *ext_names: str) -> None:
        super().__init__(pkg_path, *ext_names)
        self._watch: InterruptWatch | None = None
        os.register_at_fork(after_in_child=self._after_fork)

    def init(self, comm: Any = None, process_sets: Sequence[ProcessSet] | str | None = None) -> None:
        super().init(comm, process_sets)
        self.watch_interrupts()

    def shutdown(self) -> None:
        super().shutdown()
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    def watch_interrupts(self) -> None:
        """From the main thread; elsewhere nobody may ask to be told of signals, and Ctrl-C waits for the operation."""
        if self._watch is None and threading.current_thread() is threading.main_thread():
            self._watch = InterruptWatch()

    def _after_fork(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.leave_child()
