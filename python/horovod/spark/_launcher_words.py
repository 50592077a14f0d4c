"""What the driver's horovodrun writes to its standard error: where it waits, who has come, and then the job's."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable
from typing import TextIO

_OWN = "horovodrun: "
_FAILED = re.compile(r"the job failed: (rank \d+ on host \S+ \(pid \d+\))")
_LONGEST_LINE = 4096
_WAITS = re.compile(r"horovodrun: waits for \d+ hosts? at .*:(\d+)$")
_HAVE_COME = re.compile(r"(after \d+ s .*)?\b(\d+) of \d+ hosts have joined(.*)$")
_CALLS_NOT_PROVEN = re.compile(r"\d+ connections? did not have the token, the last from [^;]+")


class LauncherWords(io.TextIOBase):
    """A stream for run_function_job(): calls `begin` with the port at which horovodrun waits, keeps what is for the
    driver, and writes all else to `target` (sys.stderr).

    Others write there, too, at any time: ld.so, a library's warning of several lines, ranks. No line of theirs ends the
    search; those of ranks have their rank in front, so that none looks like one of horovodrun.
    """

    def __init__(self, target: TextIO | None, begin: Callable[[int], None], *, shows_all: bool) -> None:
        self._target = target if target is not None else sys.stderr
        self._begin = begin
        self._shows_all = shows_all
        self._line = ""  # what has come of the line that has not ended
        self._passes = False  # that line is not of horovodrun: what has come of it has been shown
        self._has_begun = False
        self.come: int | None = None  # how many tasks had called in when the time was over
        self.last = ""  # what else horovodrun has said, last
        self.failed_rank = ""  # "rank 1 on host task-1.n01 (pid 4711)": the first to fail

    def write(self, text: str) -> int:
        *ended, rest = text.split("\n")
        # Read whole before any of it is shown: the target may raise.
        shown = "".join([*(self._end(piece) for piece in ended), self._add(rest)])
        if shown:
            self._target.write(shown)
        return len(text)

    def flush(self) -> None:
        self._target.flush()

    def _add(self, piece: str) -> str:
        """What to show at once: all of a line that cannot become one of horovodrun."""
        line = self._line + piece
        self._line = line[-_LONGEST_LINE:]
        if self._passes:
            return piece
        self._passes = line[: len(_OWN)] != _OWN[: len(line)] or len(line) > _LONGEST_LINE
        return line if self._passes else ""

    def _end(self, piece: str) -> str:
        shown = self._add(piece)
        line, passed = self._line, self._passes
        self._line, self._passes = "", False
        if not self._has_begun and (waits := _WAITS.search(line)):  # also behind what did not end its line
            self._has_begun = True
            self._begin(int(waits[1]))
            hides = not self._shows_all
        else:
            hides = line.startswith(_OWN) and self._is_progress(line.removeprefix(_OWN)) and not self._shows_all
        if passed:
            return shown + "\n"
        return "" if hides else line + "\n"

    def _is_progress(self, words: str) -> bool:
        """Takes what the driver needs from a line of horovodrun. Whether it says no more than who has come."""
        if come := _HAVE_COME.match(words):
            if come[1]:
                self.come = int(come[2])
                unproven = _CALLS_NOT_PROVEN.search(come[3])
                self.last = unproven[0] if unproven else ""
            return True
        if failed := _FAILED.match(words):
            self.failed_rank = self.failed_rank or failed[1]
        self.last = words
        return False
