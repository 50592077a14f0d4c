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
_WAITS = re.compile(r"waits for \d+ hosts? at .*:(\d+)$")
_HAVE_COME = re.compile(r"(after \d+ s .*)?\b(\d+) of \d+ hosts have joined(.*)$")
_CALLS_NOT_PROVEN = re.compile(r"\d+ connections? did not have the token, the last from [^;]+")


class LauncherWords(io.TextIOBase):
    """A stream for run_function_job(): calls `begin` with the port at which horovodrun waits, keeps what is for the
    driver, and writes all else to `target` (sys.stderr)."""

    def __init__(self, target: TextIO | None, begin: Callable[[int], None], *, shows_all: bool) -> None:
        self._target = target if target is not None else sys.stderr
        self._begin = begin
        self._shows_all = shows_all
        self._line = ""
        self._is_gathering = True
        self.come: int | None = None  # how many tasks had called in when the time was over
        self.last = ""  # what else horovodrun has said before ranks have
        self.failed_rank = ""  # "rank 1 on host task-1.n01 (pid 4711)": the first to fail

    def write(self, text: str) -> int:
        if not self._is_gathering:
            self._watch(text)
            self._target.write(text)
            return len(text)
        self._line += text
        while self._is_gathering and "\n" in self._line:
            line, _, self._line = self._line.partition("\n")
            self._take(line)
        if not self._is_gathering or not (self._line.startswith(_OWN) or _OWN.startswith(self._line)):
            self._is_gathering = False
            self._target.write(self._line)
        return len(text)

    def flush(self) -> None:
        self._target.flush()

    def _watch(self, text: str) -> None:
        """Of the running job's lines, which pass at once."""
        *lines, self._line = (self._line + text).split("\n")
        self._line = self._line[:_LONGEST_LINE]
        for line in lines:
            self._see(line)

    def _see(self, line: str) -> None:
        if line.startswith(_OWN) and (failed := _FAILED.match(line.removeprefix(_OWN))):
            self.failed_rank = failed[1]

    def _take(self, line: str) -> None:
        words = line.removeprefix(_OWN)
        if waits := _WAITS.match(words):
            self._begin(int(waits[1]))
        elif come := _HAVE_COME.match(words):
            if come[1]:
                self.come = int(come[2])
                unproven = _CALLS_NOT_PROVEN.search(come[3])
                self.last = unproven[0] if unproven else ""
        else:
            self._is_gathering = line.startswith(_OWN)
            if self._is_gathering:
                self.last = words
            self._see(line)
            self._target.write(line + "\n")
            return
        if self._shows_all:
            self._target.write(line + "\n")
