"""What the system grants less of with each job: descriptors, processes, address space. A job runs, or says why not."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from launcher_job import RunningJob

RANKS = 3
JOB = ("-np", str(RANKS), "true")
STRANGERS = (
    54321  # the first of users who have no other processes: they would count, too, dead ones until they are reaped
)


@pytest.fixture
def public_launcher(horovodrun_path: str) -> Iterator[Path]:
    """A copy where every user may run it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield Path(shutil.copy(horovodrun_path, folder))


def outcomes(commands: list[list[str]], folder: Path, cwd: Path) -> list[int]:
    """Of each in turn: 0, or an exit code of ours and the reason. Nothing hangs, crashes or stays."""
    codes = []
    for command in commands:
        job = RunningJob([*command, *JOB], folder, {"HOME": "/tmp"}, None, cwd)
        try:
            codes.append(job.wait(10))
            assert codes[-1] in (0, 1, 126), (command, job)
            assert codes[-1] == 0 or "horovodrun: " in job.err, (command, job)
            job.wait_all_gone(5)
        finally:
            job.kill_everything()
    return codes


def assert_is_a_threshold(codes: list[int]) -> None:
    """Too little, then enough."""
    enough = codes.index(0)
    assert enough > 0, codes
    assert set(codes[enough:]) == {0}, codes


def test_few_descriptors(horovodrun_path: str, tmp_path: Path) -> None:
    limits = range(6, 45)  # with fewer libuv itself gives up
    commands = [["prlimit", f"--nofile={n}:{n}", horovodrun_path] for n in limits]
    assert_is_a_threshold(outcomes(commands, tmp_path, tmp_path))


def test_little_address_space(horovodrun_path: str, tmp_path: Path) -> None:
    if re.search(rb"lib[at]san\.so", Path(horovodrun_path).read_bytes()):
        pytest.skip("a sanitizer maps more than that for itself")
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
