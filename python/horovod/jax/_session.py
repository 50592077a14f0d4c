"""The JAX module's part of the session: its collectives on the host, its automatic names, and failures of programs."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import sys
from typing import Any

from horovod._common.arrays import ArrayCollectives
from horovod._common.native import core
from horovod._common.session import basics
from horovod._common.session_watch import watch_interrupts
from horovod.common import elastic as common_elastic
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import _on_removal
from horovod.jax import _call

__all__ = ["basics", "finish_programs", "host", "raise_failure", "restart_session", "shutdown"]

jax: Any = importlib.import_module("jax")  # Any: its types differ between versions

host = ArrayCollectives("horovod.jax")


def raise_failure() -> None:
    """Raises what ended a collective of a compiled function, once; nothing if all went well since the last time.

    JAX itself raises `jax.errors.JaxRuntimeError` with the same text, where the result is first needed, and orders
    programs of this thread that have collectives behind the one that failed: they may fail too until this was called,
    by the thread that has started them. Waits for those that still run. HorovodInternalError: ranks disagree, or a rank
    is lost. ValueError: this rank's call was wrong. KeyboardInterrupt: after Ctrl-C, which has ended the session.
    """
    try:
        core.raise_call_failure()
    except BaseException:
        _call.forget_failed()
        raise
    try:
        _call.wait_for_programs()
    except jax.errors.JaxRuntimeError as error:  # another thread was told the cause
        _call.forget_failed()
        raise HorovodInternalError(str(error)) from error


def finish_programs() -> None:
    """Waits for what this thread has started, however it ends: what comes next must not overtake it."""
    with contextlib.suppress(jax.errors.JaxRuntimeError):
        _call.wait_for_programs()
    _call.forget_failed()


def shutdown() -> None:
    """Ends the session on all ranks, when the programs that this thread has started are done.

    May be called at any time and more than once, also before init(); init() may follow, after which JAX compiles anew
    what has collectives. Programs of other threads fail.
    """
    finish_programs()
    basics.shutdown()


def restart_session() -> None:
    """Ends the session and begins the next, as elastic training does."""
    finish_programs()
    common_elastic.restart_session()


def _finish_at_exit() -> None:
    """Not after an exception, of which the other ranks do not know yet."""
    if basics.is_initialized() and not hasattr(sys, "last_value"):
        finish_programs()


def _forget_programs() -> None:
    """They hold automatic names, which new ranks and sets count anew, the number of ranks, and ids of process sets."""
    if _call.was_used():
        jax.clear_caches()


def _after_init(started: bool) -> None:
    if not started:
        return
    atexit.unregister(_finish_at_exit)
    atexit.register(_finish_at_exit)  # runs before what init() has registered
    with contextlib.suppress(BaseException):
        core.raise_call_failure()  # of the last session
    _call.forget_failed()
    _forget_programs()


os.register_at_fork(after_in_child=_call.forget_failed)  # the programs are the parent's
watch_interrupts()
basics._add_hooks(_after_init, _call.forget_failed)  # else JAX says at exit what the session's end did to programs
_on_removal(lambda _: _forget_programs())
