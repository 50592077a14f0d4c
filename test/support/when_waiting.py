"""For scripts of ranks: something happens while this rank waits for another one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from horovod import _core

_UNTIL_IT_WAITS_S = 0.2  # from the submission of an operation on


def when_waiting(act: Callable[[], object]) -> threading.Thread:
    """Calls `act` on a thread of its own once this rank waits for an operation that it has not submitted yet."""
    before = set(_core.pending_operations())

    def run() -> None:
        while not set(_core.pending_operations()) - before:
            time.sleep(0.01)
        time.sleep(_UNTIL_IT_WAITS_S)
        act()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread
