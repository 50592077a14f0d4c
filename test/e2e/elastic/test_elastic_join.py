"""Elastic jobs whose hosts call in: --join, and --wait-for-hosts with --min-np. All are this machine."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from elastic_job import ElasticJob, StartElastic
from launcher_job import RunningJob, eventually, make_token


class Callers:
    """An elastic job that waits for hosts, and the hosts that call in."""

    def __init__(self, job: ElasticJob, horovodrun: str, token: Path, folder: Path) -> None:
        self.job = job
        self.hosts: list[RunningJob] = []
        self._start = (horovodrun, "--token-file", str(token))
        self._folder = folder
        job.wait_for("waits for ")
        found = re.search(r" at (127\.0\.0\.1:\d+)\n", job.err)
        assert found, job
        self.address = found[1]

    def join(self, name: str, *flags: str) -> RunningJob:
        command = (*self._start, "--join", self.address, "--host-name", name, *flags)
        self.hosts.append(RunningJob(command, self._folder, {}, None, self._folder))
        return self.hosts[-1]

    def finish(self) -> None:
        """The job ends well, and every host that is there is let go."""
        living = [host for host in self.hosts if host.process.poll() is None]
        self.job.stop()
        assert self.job.wait() == 0, self.job
        self.job.assert_consistent()
        for host in living:
            assert host.wait() == 0, host
        self.wait_all_gone()

    def wait_all_gone(self) -> None:
        for one in (self.job, *self.hosts):
            one.wait_all_gone()


StartCalled = Callable[..., Callers]


@pytest.fixture
def start_called(start_elastic: StartElastic, horovodrun_path: str, tmp_path: Path) -> Iterator[StartCalled]:
    """start_called(2, "-np", "2", ...): a job of the worker that begins with two hosts."""
    started: list[Callers] = []

    def start(hosts: int, *flags: str) -> Callers:
        token = make_token(tmp_path / "token")
        waits = ("--wait-for-hosts", str(hosts), "--listen", "127.0.0.1", "--token-file", str(token))
        started.append(Callers(start_elastic(*waits, *flags), horovodrun_path, token, tmp_path))
        return started[-1]

    yield start
    for callers in started:
        for host in callers.hosts:
            host.kill_everything()


def test_hosts_come_are_lost_and_return(start_called: StartCalled) -> None:
    callers = start_called(1, "-np", "1", "--min-np", "1", "--max-np", "3")
    job = callers.job
    callers.join("a")
    first = job.wait_for_size(1)[0]
    # Later ones are new hosts, at the next commit; more than --max-np wait, and one of them leaves again.
    killed = callers.join("b")
    job.wait_for("host b has called in")
    assert job.wait_for_size(2)[0] == first
    told = callers.join("c")
    three = job.wait_for_size(3)
    assert three[0] == first
    callers.join("d")
    job.wait_for("host d has called in")
    leaves = callers.join("e")
    job.wait_for("host e has called in")
    leaves.signal(signal.SIGTERM)
    assert leaves.wait() == 143
    # Who takes a name that is there is refused.
    twin = callers.join("b")
    assert twin.wait() == 1
    assert "a host of the name b has joined already, from 127.0.0.1" in twin.err
    # A lost host: its ranks are gone, the survivors go on, and the one that waits takes its place.
    since = time.time()
    killed.signal(signal.SIGKILL)
    job.wait_for_restart([three[0], three[2]], since)
    job.wait_for("lost host b: the other end has closed the connection; it may call in again")
    four = job.wait_for_size(3)
    assert {three[0], three[2]} < set(four.values())
    killed.wait_all_gone()
    # The scheduler ends one, which then comes back under its name.
    told.signal(signal.SIGTERM)
    assert told.wait() == 143
    two = job.wait_for_size(2)
    assert two[0] == first
    callers.join("c")
    assert job.wait_for_size(3)[0] == first
    callers.join("b")
    eventually(lambda: job.err.count("host b has called in") == 2, f"b comes back, and waits\n{job}")
    callers.finish()


def test_a_host_where_a_process_failed_is_left_aside_and_used_again(start_called: StartCalled) -> None:
    callers = start_called(2, "-np", "2", "--min-np", "1", "--blacklist-cooldown-range", "1", "2")
    job = callers.job
    for name in ("a", "b"):
        callers.join(name)
    old = job.wait_for_size(2)
    job.kill(1)
    job.wait_for("host b is left aside for 2 s: a process failed there")
    back = job.wait_for_size(2)
    assert back[0] == old[0]
    callers.finish()


def test_a_killed_rank_is_replaced_and_a_killed_agent_is_a_lost_host(start_called: StartCalled) -> None:
    callers = start_called(2, "-np", "4", "--min-np", "4", "--elastic-timeout", "60")
    job = callers.job
    a, b = callers.join("a"), callers.join("b")
    old = job.wait_for_size(4)
    since = job.kill(1)
    job.wait_for_restart([old[0], old[2], old[3]], since)
    new = job.wait_for_size(4)
    assert [new[rank] for rank in (0, 2, 3)] == [old[rank] for rank in (0, 2, 3)]
    (agent,) = b.named("hvd-agent")
    os.kill(agent, signal.SIGKILL)
    assert b.wait() == 1
    job.wait_for("the hosts have 2 slots, the job needs at least 4: waiting for hosts to call in, for at most 60 s")
    callers.join("b")
    assert set(job.wait_for_size(4).values()) > {new[0], new[1]}
    assert a.process.poll() is None
    callers.finish()


def test_too_few_hosts_end_the_job_in_time(start_called: StartCalled) -> None:
    callers = start_called(2, "-np", "2", "--min-np", "2", "--elastic-timeout", "1")
    a, b = callers.join("a"), callers.join("b")
    callers.job.wait_for_size(2)
    b.signal(signal.SIGKILL)
    assert callers.job.wait() == 1, callers.job
    assert "the job needs at least 2 slots and has 1 after 1 s (--elastic-timeout)" in callers.job.err
    assert a.wait() == 0, a
    callers.wait_all_gone()


def test_the_reset_limit_holds(start_called: StartCalled) -> None:
    callers = start_called(1, "-np", "1", "--min-np", "1", "--reset-limit", "0")
    callers.join("a")
    callers.job.wait_for_size(1)
    callers.join("b")
    assert callers.job.wait() == 1, callers.job
    assert "Reset limit reached" in callers.job.err
    for host in callers.hosts:
        assert host.wait() == 0, host
    callers.wait_all_gone()


def test_a_killed_launcher_leaves_nothing(start_called: StartCalled) -> None:
    callers = start_called(2, "-np", "2", "--min-np", "1", "--max-np", "2")
    for name in ("a", "b"):
        callers.join(name)
    callers.job.wait_for_size(2)
    idle = callers.join("c")
    callers.job.wait_for("host c has called in")
    callers.job.signal(signal.SIGKILL)
    for host in callers.hosts:
        assert host.wait() == 1, host
        assert "lost the launcher at" in host.err or host is idle
    assert "the launcher at" in idle.err
    callers.wait_all_gone()


def test_a_host_that_is_told_to_go_leaves_after_a_commit(start_called: StartCalled) -> None:
    callers = start_called(2, "-np", "2", "--min-np", "1", "--grace", "20")
    job = callers.job
    callers.join("a")
    b = callers.join("b")
    old = job.wait_for_size(2)
    b.signal(signal.SIGTERM)
    job.wait_for("host b was told to go (SIGTERM)")
    assert job.wait_for_size(1)[0] == old[0]
    assert b.wait() == 143
    assert "lost host" not in job.err
    callers.join("b")
    assert job.wait_for_size(2)[0] == old[0]
    callers.finish()


def test_hosts_of_one_node_share_local_ranks(start_called: StartCalled) -> None:
    callers = start_called(2, "-np", "2", "--min-np", "1")
    for name in ("task-0", "task-1"):
        callers.join(name, "--node-name", "n")
    assert sorted((one.rank, one.local_rank) for one in callers.job.latest_of(2)) == [(0, 0), (1, 1)]
    callers.join("task-2", "--node-name", "n")
    assert sorted((one.rank, one.local_rank) for one in callers.job.latest_of(3)) == [(0, 0), (1, 1), (2, 2)]
    callers.finish()
