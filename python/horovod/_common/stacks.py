"""Lets `horovodrun --stacks` see where this process stands: its agent sends a signal, the answer is in a memory file.

The agent (launcher/agent/stack_dump.cc) finds the file by its name and looks whether the signal has a handler before it
sends it. So a process that has closed the file, or has become another program, is not asked.
"""

from __future__ import annotations

import faulthandler
import fcntl
import os
import signal
from typing import TYPE_CHECKING

from horovod import _env

if TYPE_CHECKING:
    from types import ModuleType

# Real-time signals are nobody's by default; glibc keeps the first two for itself.
_SIGNAL = signal.SIGRTMAX - 3
_FILE_NAME = "hvd-stacks"


def install(core: ModuleType) -> None:
    """Once in a process, where an agent has started it; `--stacks` only if the program leaves the signal alone."""
    if _env.get("HOROVOD_AGENT") is None:
        return
    if faulthandler.is_enabled():  # horovodrun sees to that, unless the user has said otherwise
        core.install_native_stacks()
    if signal.getsignal(_SIGNAL) is not signal.SIG_DFL:
        return
    try:
        fd = os.memfd_create(_FILE_NAME, os.MFD_CLOEXEC)
    except OSError:  # descriptors or memory have run out: the program has other worries
        return
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)  # the agent empties the file

    def register() -> None:  # without a chain: with one, system calls would end with EINTR
        faulthandler.register(_SIGNAL, file=fd, all_threads=True, chain=False)

    if not core.install_stacks(_SIGNAL, fd, register):  # a handler that Python does not know of
        os.close(fd)
