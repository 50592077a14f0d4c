"""A launcher that runs, and all that it has started: for tests that watch and disturb it."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from jobs import DEADLINE_S, eventually

MARKER = "HVD_E2E_MARKER"
# How a rank's program begins that adds up its number, from 1 on, with those of the others: value[0].
ADDS_UP = """
import ctypes
from horovod._common.native import core
core.init()
value = (ctypes.c_float * 1)(core.rank() + 1.0)
at = ctypes.addressof(value)
call = (core.OP_ALLREDUCE, "sum", -1, ())
core.enqueue(call, (at, at, [1], core.DTYPE_FLOAT32, -1), (core.REDUCE_SUM, 1.0, 1.0, 0), value).wait()
"""
GONE_S = 15.0  # what ends with its launcher, TERM and KILL included; after 20 s of silence LeaseWatch would end it


def make_token(path: Path) -> Path:
    """A file for --token-file."""
    path.touch(0o600)
    path.write_text(secrets.token_hex(32) + "\n")
    return path


class RunningJob:
    """A launcher that was started, and everything that it has started: found by a marker in their environment."""

    def __init__(
        self, command: Sequence[str], folder: Path, env: Mapping[str, str | None], stdout: int | None, cwd: Path
    ) -> None:
        variables = {**os.environ, **env}
        self.marker = uuid.uuid4().hex
        self.out_path = folder / f"{self.marker}.out"
        self.err_path = folder / f"{self.marker}.err"
        with self.out_path.open("wb") as out, self.err_path.open("wb") as err:
            self.process = subprocess.Popen(
                command,
                cwd=cwd,
                env={name: value for name, value in variables.items() if value is not None} | {MARKER: self.marker},
                stdin=subprocess.DEVNULL,
                stdout=out if stdout is None else stdout,
                stderr=err,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def out(self) -> str:
        return self.out_path.read_text(errors="replace")

    @property
    def err(self) -> str:
        return self.err_path.read_text(errors="replace")

    def lines(self, prefix: str) -> list[str]:
        """What a rank has printed: the lines that begin with the prefix, without it."""
        return [line[len(prefix) :] for line in self.out.splitlines() if line.startswith(prefix)]

    def wait_for(self, text: str, deadline_s: float = DEADLINE_S) -> None:
        """Until the text is in what the launcher has printed; fails at once when the launcher has ended without."""

        def seen_or_over() -> bool:
            is_over = self.process.poll() is not None  # before the look: what it printed last counts
            return text in self.out or text in self.err or is_over

        eventually(seen_or_over, f"'{text}' in the output; there is:\n{self}", deadline_s)
        if text not in self.out and text not in self.err:
            pytest.fail(f"the launcher ended with {self.process.returncode}, without '{text}' in the output\n{self}")

    def wait(self, deadline_s: float = DEADLINE_S) -> int:
        """The exit code as a shell reports it."""
        try:
            code = self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the launcher did not end within {deadline_s} s\n{self}")
        return code if code >= 0 else 128 - code

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def processes(self) -> dict[int, str]:
        """pid -> command line of all living processes of this job, the launcher included."""
        entry = f"{MARKER}={self.marker}".encode()
        found = {}
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                if entry in (folder / "environ").read_bytes().split(b"\0"):
                    found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
        return {pid: text for pid, text in found.items() if text}

    def named(self, name: str) -> list[int]:
        """The job's processes with that short name (hvd-agent, hvd-guard, sleep, ...)."""
        found = []
        for pid in self.processes():
            try:
                if (Path("/proc") / str(pid) / "comm").read_text().strip() == name:
                    found.append(pid)
            except OSError:
                continue
        return found

    def wait_all_gone(self, deadline_s: float = GONE_S) -> None:
        """Until no process of the job is left."""
        end = time.monotonic() + deadline_s
        while left := self.processes():
            if time.monotonic() > end:
                pytest.fail(f"left behind after {deadline_s} s: {left}\n{self}")
            time.sleep(0.01)

    def kill_everything(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def __repr__(self) -> str:
        return f"--- stdout\n{self.out[-4000:]}\n--- stderr\n{self.err[-4000:]}"


StartJob = Callable[..., RunningJob]


def ended_by_timeout(start_job: StartJob, says: Callable[[RunningJob], bool], *arguments: str) -> RunningJob:
    """A job that --timeout has ended when its ranks were where they say so, which takes them longer on a busy machine."""
    for seconds in (1, 2, 4, 8, 16, 32):
        job = start_job("--timeout", str(seconds), *arguments)
        assert job.wait() == 124, job
        assert f"the job has run for {seconds} s (--timeout)" in job.err, job
        if says(job):
            return job
    pytest.fail(f"they do not say it\n{job}")
