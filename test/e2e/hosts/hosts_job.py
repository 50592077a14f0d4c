"""What the tests with several hosts ask of a running job."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from launcher_job import GONE_S, RunningJob, eventually
from netns import PATIENCE_S, Network

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]

StartOn = Callable[..., RunningJob]
REDUCE = (sys.executable, str(HERE / "reduce_worker.py"))


def wait_ready(job: RunningJob, ranks: int) -> None:
    """Until every rank has done its first allreduce."""

    def all_ready() -> bool:
        return all("ready" in job.lines(f"[{rank}]<stdout>:") for rank in range(ranks))

    eventually(lambda: all_ready() or job.process.poll() is not None, f"{ranks} ranks are ready", PATIENCE_S * 2)
    assert job.process.poll() is None, job


@dataclass(frozen=True)
class Failure:
    """What a surviving rank has raised, and when (time.monotonic(), which is one clock for all processes)."""

    rank: int
    when: float
    message: str


def failures(job: RunningJob) -> list[Failure]:
    pattern = re.compile(r"\[(\d+)\]<stdout>:failed ([\d.]+) (.*)")
    return [Failure(int(m[1]), float(m[2]), m[3]) for line in job.out.splitlines() if (m := pattern.fullmatch(line))]


def assert_nothing_left(network: Network, job: RunningJob, deadline_s: float = GONE_S) -> None:
    """No process of a job on any host: neither rank nor agent, ssh client or ssh session."""
    end = time.monotonic() + deadline_s
    while left := network.job_processes():
        if time.monotonic() > end:
            pytest.fail(f"left behind after {deadline_s} s: {left}\n{job}")
        time.sleep(0.01)


def namespace_of(pid: int) -> str:
    return os.readlink(f"/proc/{pid}/ns/net")
