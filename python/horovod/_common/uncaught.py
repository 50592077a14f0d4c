"""Reports an uncaught exception to the other ranks, and prints in one line what they raise because of it, and what
ends a rank that an elastic job does without.

The report is made right after the traceback, not at the end of the process: the interpreter joins threads before that,
and the other ranks would wait for so long.
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

# The text of an exception that is no mistake of the place that raises it: another rank's has caused it, and that rank
# prints the traceback; or an elastic job goes on without this rank, which may have been planned.
_ECHO = re.compile(r"rank \d+ is lost: uncaught exception .*|(?<=may not go on: )its slot was removed: .*")
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_LIBRARIES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")

_installed = False


def _describe(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if len(text) <= _MAX_TEXT:
        return text
    # Both ends: TensorFlow's errors begin with the place and end with the reason.
    return f"{text[: _MAX_TEXT // 2]} ... {text[-_MAX_TEXT // 2 :]}"


def _is_of_the_program(frame: traceback.FrameSummary) -> bool:
    return not frame.filename.startswith(_PACKAGE) and not any(part in frame.filename for part in _LIBRARIES)


def _echo_line(error: BaseException, trace: TracebackType | None) -> str | None:
    """One line instead of a traceback, if `error` only repeats what another rank or the launcher says; else None.

    None also with HOROVOD_LOG_LEVEL=info, debug or trace.
    """
    echo = _ECHO.search(str(error))
    if echo is None or (_env.get("HOROVOD_LOG_LEVEL") or "").lower() in ("trace", "debug", "info"):
        return None
    frames = traceback.extract_tb(trace)
    own = [frame for frame in frames if _is_of_the_program(frame)] or frames
    where = f" at {own[-1].filename}:{own[-1].lineno}, in {own[-1].name}" if own else ""
    return f"stopped{where}: {type(error).__name__}: {echo[0]}"


def announce(error: BaseException | None) -> None:
    """Reports that `error` ends this process. Only the first failure of a job counts, and only while a session runs."""
    is_interactive = hasattr(sys, "ps1") or bool(sys.flags.interactive)  # an exception does not end the process
    if error is not None and not is_interactive:
        core.announce_failure(f"uncaught exception {_describe(error)}")


def announce_last() -> None:
    """At exit: reports the exception that ended the program, if a hook that replaced ours printed it."""
    announce(getattr(sys, "last_value", None))


def install() -> None:
    """From now on, uncaught exceptions are reported to the other ranks, after they were printed."""
    global _installed  # noqa: PLW0603  once per process: the program may install hooks above ours
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
