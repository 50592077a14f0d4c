"""SIGTERM in a job with --grace: whoever owns the machine wants it back, and the rank may leave later."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from horovod import _env
from horovod._common.native import core

__all__ = ["leaving_later"]


@contextlib.contextmanager
def leaving_later() -> Iterator[None]:
    """In here the first SIGTERM is passed on to the launcher, and this process goes on to the next commit.

    Not where the job itself ends the process, nor a second time, nor in a child process, which has inherited the
    handler: there SIGTERM is what it was. Nothing changes without --grace, off the main thread, or if the script
    handles SIGTERM.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not _env.has_grace() or not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    pid = os.getpid()
    was_told = False

    def told_to_go(number: int, frame: FrameType | None) -> None:
        nonlocal was_told
        if os.getpid() == pid and not was_told and core.may_leave_later():
            was_told = True
            return
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, told_to_go)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is told_to_go:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
