"""Fixtures of the launcher's tests."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest
from launcher_job import RunningJob, StartJob

from jobs import program


@pytest.fixture(autouse=True)
def chosen_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has chosen a number of threads is not told one, and the launcher is silent where nothing happens."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def start_job(horovodrun_path: str, tmp_path: Path) -> Iterator[StartJob]:
    """start_job("-np", "2", ...) starts the launcher with these arguments; the test's end ends what is left."""
    jobs: list[RunningJob] = []

    def start(
        *arguments: str,
        env: Mapping[str, str | None] | None = None,
        stdout: int | None = None,
        cwd: Path = tmp_path,
        on_cores: Collection[int] = (),
    ) -> RunningJob:
        own_cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, on_cores or own_cores)
        try:
            jobs.append(RunningJob([horovodrun_path, *arguments], tmp_path, env or {}, stdout, cwd))
        finally:
            os.sched_setaffinity(0, own_cores)
        return jobs[-1]

    yield start
    for job in jobs:
        job.kill_everything()


@pytest.fixture
def public_launcher(horovodrun_path: str) -> Iterator[Path]:
    """A copy where every user may run it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield Path(shutil.copy(horovodrun_path, folder))


@pytest.fixture
def fake_ssh(tmp_path: Path) -> str:
    """A stand-in for the ssh client: prints what start-up files print, then runs the remote command on this machine.

    As a real one does, with an environment of its own, in the home directory, and only after `--`, host and command.
    """
    return program(
        tmp_path / "fake_ssh",
        "#!/bin/sh\n"
        'for word in "$@"; do [ "$word" = -G ] && exit 1; done\n'
        'while [ "$1" != "--" ]; do shift || exit 255; done\n'
        '[ $# -eq 3 ] || { echo "expected a host and one command, got: $*" >&2; exit 255; }\n'
        "echo 'Welcome to the machine'\n"
        "printf 'a line without an end'\n"
        "echo 'banner on stderr' >&2\n"
        'cd "$HOME" || exit 255\n'
        'exec env -i HOME="$HOME" USER="$(id -un)" SHELL=/bin/sh PATH=/usr/local/bin:/usr/bin:/bin sh -c "$3"\n',
    )
