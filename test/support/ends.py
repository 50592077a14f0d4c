"""For scripts that train until a rank ends, in the way that the first argument names, and that are watched by a test."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator

from when_waiting import when_waiting

END_IN_STEP = 20
SIGNALS = {"kill": signal.SIGKILL, "interrupt": signal.SIGINT}


def say_end() -> None:
    print("ends", time.time(), flush=True)


def end_now(number: int) -> None:
    """This process gets the signal."""
    say_end()
    os.kill(os.getpid(), number)


def end(rank: int) -> None:
    """stall: rank 1 sleeps, and the others get a Ctrl-C once they wait for it. kill, interrupt: rank 1 gets that signal.
    raise: it raises.
    """
    if sys.argv[1] == "stall":
        if rank == 1:
            time.sleep(60)
        else:
            when_waiting(lambda: end_now(signal.SIGINT))
    elif rank == 1:
        if sys.argv[1] == "raise":
            say_end()
            raise ValueError("no more of this")
        end_now(SIGNALS[sys.argv[1]])


def steps(rank: int) -> Iterator[int]:
    """More than a script gets to."""
    for number in range(1_000_000):
        if number == END_IN_STEP:
            end(rank)
        yield number


@contextlib.contextmanager
def hearing() -> Iterator[None]:
    """Says what the block raises, and when."""
    try:
        yield
    except BaseException as error:
        print("heard", time.time(), type(error).__name__, str(error).splitlines()[:1], flush=True)
        raise
