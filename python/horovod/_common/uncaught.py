"""Tells the other ranks when this one goes down because of an uncaught exception.

At the end of the traceback, not at the end of the process: until then threads may be joined, and the others would wait.
"""

from __future__ import annotations

import sys
from types import TracebackType

from horovod._common.native import core

_MAX_TEXT = 500

_installed = False


def _describe(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if len(text) <= _MAX_TEXT:
        return text
    # Both ends: TensorFlow's errors begin with where and end with why.
    return f"{text[: _MAX_TEXT // 2]} ... {text[-_MAX_TEXT // 2 :]}"


def announce(error: BaseException | None) -> None:
    """Says that `error` ends this process. Only the first of a job's failures counts, and only while a session runs."""
    goes_on = hasattr(sys, "ps1") or bool(sys.flags.interactive)  # at a prompt an exception ends nothing
    if error is not None and not goes_on:
        core.announce_failure(f"uncaught exception {_describe(error)}")


def announce_last() -> None:
    """At exit: the exception that ended the program, if one did and whoever printed it did not tell us."""
    announce(getattr(sys, "last_value", None))


def install() -> None:
    """Makes uncaught exceptions known to the other ranks, after they were printed as before."""
    global _installed  # noqa: PLW0603  once per process: hooks of the program may come on top
    if _installed:
        return
    _installed = True
    print_as_before = sys.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        try:
            print_as_before(kind, error, trace)
        finally:
            announce(error)

    sys.excepthook = excepthook
