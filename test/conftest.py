"""Fixtures of all Python suites: starting real jobs through horovodrun."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DEADLINE_S = 240


@dataclass(frozen=True)
class Job:
    """What a finished job left behind."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return f"exit code {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


def run_to_end(
    command: Sequence[str], env: Mapping[str, str] | None = None, deadline_s: float = DEADLINE_S, cwd: Path = ROOT
) -> Job:
    """Runs a command to its end; one that misses the deadline is killed with all it started, and fails the test."""
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=deadline_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        pytest.fail(f"{' '.join(command)} did not end within {deadline_s} s\n{Job(-1, out, err).text}")
    return Job(process.returncode, out, err)


@pytest.fixture(scope="session")
def horovodrun_path() -> str:
    """The launcher: HVD_HOROVODRUN, or the one next to this Python, or the one on PATH."""
    beside = Path(sys.executable).parent / "horovodrun"
    found = os.environ.get("HVD_HOROVODRUN") or (str(beside) if beside.exists() else shutil.which("horovodrun"))
    if not found:
        pytest.skip("horovodrun is neither named by HVD_HOROVODRUN nor on PATH")
    return found


RunJob = Callable[..., Job]


@pytest.fixture
def horovodrun(horovodrun_path: str) -> RunJob:
    """run(2, "script.py", ...) starts that Python script on two ranks and waits for the end of the job."""

    def run(
        ranks: int,
        *command: str,
        flags: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        deadline_s: float = DEADLINE_S,
    ) -> Job:
        return run_to_end([horovodrun_path, "-np", str(ranks), *flags, sys.executable, *command], env, deadline_s)

    return run
