"""What the system grants less of with each job: descriptors, processes, address space. A job runs, or says why not."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from launcher_job import RunningJob

REDUCE = Path(__file__).parent.parent / "hosts" / "reduce_worker.py"
RANKS = 3
JOB = ("-np", str(RANKS), "true")
STRANGERS = (
    54321  # the first of users who have no other processes: they would count, too, dead ones until they are reaped
)


def outcomes(commands: list[list[str]], folder: Path, cwd: Path) -> list[int]:
    """Of each in turn: 0, or an exit code of ours and the reason. Nothing hangs, crashes or stays."""
    codes = []
    for command in commands:
        job = RunningJob([*command, *JOB], folder, {"HOME": "/tmp"}, None, cwd)
        try:
            codes.append(job.wait())
            assert codes[-1] in (0, 1, 126), (command, job)
            assert codes[-1] == 0 or "horovodrun: " in job.err, (command, job)
            job.wait_all_gone()
        finally:
            job.kill_everything()
    return codes


def skip_with(sanitizer: str, program: str, why: str) -> None:
    if re.search(rf"lib{sanitizer}\.so".encode(), Path(program).read_bytes()):
        pytest.skip(f"a sanitizer {why}")


def assert_is_a_threshold(codes: list[int]) -> None:
    """Too little, then enough."""
    enough = codes.index(0)
    assert enough > 0, codes
    assert set(codes[enough:]) == {0}, codes


def test_few_descriptors(horovodrun_path: str, tmp_path: Path) -> None:
    skip_with("ubsan", horovodrun_path, "asks whether it may read memory by pipes of its own")
    limits = range(6, 45)  # with fewer libuv itself gives up
    commands = [["prlimit", f"--nofile={n}:{n}", horovodrun_path] for n in limits]
    assert_is_a_threshold(outcomes(commands, tmp_path, tmp_path))


def test_little_address_space(horovodrun_path: str, tmp_path: Path) -> None:
    skip_with("[at]san", horovodrun_path, "maps more than that for itself")
    limits = range(14 << 20, 120 << 20, 3 << 20)  # with less not even the C library can be loaded
    commands = [["prlimit", f"--as={n}:{n}", horovodrun_path] for n in limits]
    assert_is_a_threshold(outcomes(commands, tmp_path, tmp_path))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become a user without other processes")
def test_few_processes(public_launcher: Path, tmp_path: Path) -> None:
    def command(limit: int) -> list[str]:
        user = STRANGERS + limit
        as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", str(public_launcher)]
        return ["prlimit", f"--nproc={limit}:{limit}", *as_user]

    commands = [command(limit) for limit in range(2, 25)]
    assert_is_a_threshold(outcomes(commands, tmp_path, public_launcher.parent))


@pytest.mark.parametrize(
    ("limit", "values"), [("nofile", range(12, 28, 2)), ("as", range(40 << 20, 280 << 20, 20 << 20))]
)
def test_limits_of_one_rank(limit: str, values: range, horovodrun_path: str, tmp_path: Path) -> None:
    """Which trains with another, or raises the reason. With fewer descriptors libuv itself aborts, as above."""
    for value in values:
        limited = f'test "$HOROVOD_RANK" = 0 || limit="prlimit --{limit}={value}:{value}"'
        worker = f"{limited}; exec $limit {sys.executable} {REDUCE} --until /dev/null"
        command = [horovodrun_path, "-np", "2", "sh", "-c", worker]
        job = RunningJob(command, tmp_path, {}, None, tmp_path)
        try:
            assert job.wait() in (0, 1, 127), (limit, value, job)  # 127: Python's own libraries do not fit
            reasons = ("Error", "error", "Cannot allocate memory")
            assert job.process.returncode == 0 or any(why in job.err for why in reasons), (limit, value, job)
            assert "check failed" not in job.err, (limit, value, job)
            job.wait_all_gone()
        finally:
            job.kill_everything()
