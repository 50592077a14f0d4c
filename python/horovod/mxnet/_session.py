"""The MXNet module's part of the session: its automatic names, and the end of what MXNet's engine still has to do."""

from __future__ import annotations

import atexit
import logging
import sys

from horovod._common.arrays import ArrayCollectives
from horovod._common.names import AutomaticNames
from horovod._common.native import core
from horovod._common.session import basics
from horovod._common.session_watch import watch_interrupts

__all__ = ["basics", "host", "names", "shutdown"]

_STALL_S = 5.0

host = ArrayCollectives("horovod.mxnet")  # for objects, which are no arrays of MXNet
# One count for each kind of operation.
names = {kind: AutomaticNames() for kind in ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter")}


def _wait_for_calls() -> None:
    """Until none is left, or other ranks seem not to make those that this rank has submitted."""
    while not core.mxnet_wait_for_calls(_STALL_S):
        # Without any in the session, the engine still computes what the calls are to send.
        waiting = core.pending_operations()
        if waiting:
            logging.getLogger("horovod").warning(
                "the session ends although MXNet's engine has calls that other ranks have not made for %g s: %s",
                _STALL_S,
                ", ".join(map(str, waiting[:5])),
            )
            return


def shutdown() -> None:
    """Ends the session on all ranks, when the operations that this process has given to MXNet's engine have ended.

    May be called at any time and more than once, also before init(); init() may follow. While an exception is handled,
    as in `finally`, it waits for nothing: other ranks may never make these calls. They fail. So do those that wait for
    other ranks when none has ended for five seconds.
    """
    if basics.is_initialized() and sys.exc_info()[0] is None:
        _wait_for_calls()
    basics.shutdown()


def _finish_at_exit() -> None:
    """Not after an exception, of which the other ranks do not know yet, nor in a child that a rank has forked."""
    if core.is_initialized() and not hasattr(sys, "last_value"):
        _wait_for_calls()


def _after_init(started: bool) -> None:
    if started:
        atexit.unregister(_finish_at_exit)
        atexit.register(_finish_at_exit)  # runs before what init() has registered


watch_interrupts()
basics._add_hooks(_after_init, lambda: None)
