"""Fixtures of the tests of elastic jobs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent / "launcher"))

from elastic_job import ElasticJob, StartElastic
from launcher_job import RunningJob


@pytest.fixture(autouse=True)
def chosen_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has chosen a number of threads is not told one."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def start_elastic(horovodrun_path: str, tmp_path: Path) -> Iterator[StartElastic]:
    """start_elastic("-np", "2", ...) starts a job of the worker; its `hosts` file is what `--host-discovery-script` of
    the test prints."""
    jobs: list[ElasticJob] = []

    def start(*flags: str, command: tuple[str, ...] = (), hosts: str = "", wrapper: str = "") -> ElasticJob:
        jobs.append(ElasticJob((horovodrun_path,), tmp_path, flags, command, hosts, wrapper))
        return jobs[-1]

    yield start
    for job in jobs:
        RunningJob.kill_everything(job)
