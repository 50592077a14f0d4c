"""Tells the other ranks when this one goes down because of an uncaught exception, and prints their echoes in one line.

At the end of the traceback, not at the end of the process: until then threads may be joined, and the others would wait.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from types import TracebackType

from horovod import _env
from horovod._common.native import core

_MAX_TEXT = 500

# What an exception says that is only the echo of another rank's, which prints a traceback of its own.
_ECHO = re.compile(r"rank \d+ is lost: uncaught exception .*")
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_LIBRARIES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")

_installed = False


def _describe(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if len(text) <= _MAX_TEXT:
        return text
    # Both ends: TensorFlow's errors begin with where and end with why.
    return f"{text[: _MAX_TEXT // 2]} ... {text[-_MAX_TEXT // 2 :]}"


def _is_of_the_program(frame: traceback.FrameSummary) -> bool:
    return not frame.filename.startswith(_PACKAGE) and not any(part in frame.filename for part in _LIBRARIES)


def _echo_line(error: BaseException, trace: TracebackType | None) -> str | None:
    """One line instead of a traceback, when `error` only says that another rank has raised; None otherwise.

    With HOROVOD_LOG_LEVEL=info and below everything is printed.
    """
    echo = _ECHO.search(str(error))
    if echo is None or (_env.get("HOROVOD_LOG_LEVEL") or "").lower() in ("trace", "debug", "info"):
        return None
    frames = traceback.extract_tb(trace)
    own = [frame for frame in frames if _is_of_the_program(frame)] or frames
    where = f" at {own[-1].filename}:{own[-1].lineno}, in {own[-1].name}" if own else ""
    return f"stopped{where}: {type(error).__name__}: {echo[0]}"


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
            line = _echo_line(error, trace)
            if line is None:
                print_as_before(kind, error, trace)
            else:
                print(line, file=sys.stderr, flush=True)
        finally:
            announce(error)

    sys.excepthook = excepthook
