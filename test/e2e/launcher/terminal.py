"""A terminal with a program in it, for tests of what a user sees and types."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from jobs import DEADLINE_S


class Terminal:
    """A pseudo-terminal; the program leads its session. `text` is everything that it has shown."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self._raw = b""
        self.pid, self.fd = os.forkpty()
        if self.pid == 0:
            for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):  # nohup and background shells ignore them
                signal.signal(number, signal.SIG_DFL)
            os.execvpe(command[0], list(command), {**os.environ, "TERM": "dumb", **(env or {})})
        self._code: int | None = None

    @property
    def text(self) -> str:
        return self._raw.decode(errors="replace").replace("\r\n", "\n")

    def type(self, keys: str) -> None:
        os.write(self.fd, keys.encode())

    def pump(self, seconds: float) -> bool:
        """Takes what comes within that time; false at the end."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return True
        try:
            chunk = os.read(self.fd, 65536)
        except OSError:  # EIO: the last program has closed the terminal
            return False
        self._raw += chunk
        return bool(chunk)

    def wait_for(self, wanted: str, times: int = 1, deadline_s: float = DEADLINE_S) -> float:
        """Until the terminal shows that text so many times; the moment at which it did."""
        end = time.monotonic() + deadline_s
        while self.text.count(wanted) < times:
            if time.monotonic() > end or not self.pump(0.02):
                pytest.fail(f"'{wanted}' x {times} is not on the terminal, but this:\n{self.text}")
        return time.monotonic()

    def wait(self, deadline_s: float = DEADLINE_S) -> int:
        """The program's exit code, as a shell reports it; what it still shows is taken."""
        end = time.monotonic() + deadline_s
        while self._code is None:
            open_still = self.pump(0.02)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid != 0:
                code = os.waitstatus_to_exitcode(status)
                self._code = code if code >= 0 else 128 - code
            elif time.monotonic() > end:
                pytest.fail(f"the program does not end; the terminal shows:\n{self.text}")
            elif not open_still:
                time.sleep(0.01)
        while self.pump(0.05) and select.select([self.fd], [], [], 0)[0]:
            pass
        return self._code

    def hang_up(self) -> int:
        """Closes the terminal and waits for its program; the exit code, or -n after signal n."""
        os.close(self.fd)
        end = time.monotonic() + DEADLINE_S
        while (found := os.waitpid(self.pid, os.WNOHANG))[0] == 0:
            if time.monotonic() > end:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                pytest.fail("the program outlives its terminal")
            time.sleep(0.01)
        return os.waitstatus_to_exitcode(found[1])

    def close(self) -> None:
        """Ends the whole session, jobs in the background included."""
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                session = stat.read_text().rsplit(") ", 1)[1].split()[3]
                if int(session) == self.pid:
                    os.kill(int(stat.parent.name), signal.SIGKILL)
        if self._code is None:
            os.waitpid(self.pid, 0)
        os.close(self.fd)
