"""Whatever dies on whichever host: the others notice in time, say who it was, and leave nothing behind."""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from hosts_job import REDUCE, StartOn, assert_nothing_left, failures, wait_ready
from launcher_job import RunningJob, eventually
from netns import PATIENCE_S, Host, Network

from jobs import assert_soon

# Ranks that end neither by TERM nor with their parent: with children in sessions of their own.
STUBBORN = ("sh", "-c", "trap '' TERM HUP INT; setsid sleep 1001 & sleep 1002 & echo ready; while :; do sleep 1; done")


def start_stubborn(network: Network, start_on: StartOn, launch_host: str) -> RunningJob:
    job = start_on(network.hosts[launch_host], "-np", "4", "-H", "a:2,b:2", *STUBBORN)
    eventually(lambda: job.out.count(">:ready\n") == 4, f"four ranks are ready; there is:\n{job}", PATIENCE_S)
    return job


@pytest.mark.parametrize("launch_host", ["a", pytest.param("c", marks=pytest.mark.slow)])
def test_nothing_outlives_a_killed_launcher(network: Network, start_on: StartOn, launch_host: str) -> None:
    for _ in range(5):
        job = start_stubborn(network, start_on, launch_host)
        job.signal(signal.SIGKILL)
        assert job.wait() == 137
        assert_nothing_left(network, job)


def test_a_killed_rank_on_another_host_is_named_within_a_second(network: Network, start_on: StartOn) -> None:
    # Survivors have the time that they need to say it.
    patient = ("--kill-grace", "60", "sh", "-c", "trap '' TERM; exec \"$@\"", "sh", *REDUCE, "--elements", "300000")

    def seconds() -> float:
        job = start_on(network.hosts["a"], "-np", "4", "-H", "a:2,b:2", *patient)
        wait_ready(job, 4)
        victim = network.hosts["b"].ranks()[3]
        killed = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        assert job.wait() == 137, job
        told = failures(job)
        assert {failure.rank for failure in told} == {0, 1, 2}, job
        for failure in told:
            assert re.search(r"\brank 3\b.* host b\b", failure.message), job
        assert f"rank 3 on host b (pid {victim}) was killed by signal 9 (SIGKILL)" in job.err
        assert "Process name: 3\nExit code: 137\n" in job.err
        assert_nothing_left(network, job)
        return max(failure.when for failure in told) - killed

    assert_soon(seconds, 1.0)


@pytest.mark.parametrize("victim", ["ssh", "agent", "sshd session"])
def test_a_host_that_is_lost_ends_the_job(network: Network, start_on: StartOn, victim: str) -> None:
    a, b = network.hosts["a"], network.hosts["b"]

    def seconds() -> float:
        job = start_stubborn(network, start_on, "a")
        if victim == "ssh":
            (pid,) = a.named("ssh")
        elif victim == "agent":
            (pid,) = b.named("hvd-agent")
        else:
            pid = next(pid for pid, text in b.job_processes().items() if text.startswith("sshd: "))
        killed = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        assert job.wait() == 1, job
        took = time.monotonic() - killed
        assert "horovodrun: lost host b: " in job.err
        assert_nothing_left(network, job)
        return took

    assert_soon(seconds, 1 + 2 + 2)  # time to raise, from TERM to KILL, and to end


# runtime/transport/net/sockets.h, kPeerSilence: keepalive and TCP_USER_TIMEOUT.
PEER_SILENCE_S = 6.0
# ssh's ServerAliveInterval times ServerAliveCountMax, and one interval more (launcher/ssh/ssh_command.cc).
SSH_SILENCE_S = 20.0


def cut_off(network: Network, host: Host, how: str) -> AbstractContextManager[None]:
    return {"cable": network.cable_pulled, "interface": network.interface_down, "one way": network.unheard}[how](host)


@pytest.mark.slow
@pytest.mark.parametrize(("launch_host", "how"), [("a", "cable"), ("c", "cable"), ("c", "interface"), ("c", "one way")])
def test_a_cut_network_is_noticed_by_keepalive(network: Network, start_on: StartOn, launch_host: str, how: str) -> None:
    b = network.hosts["b"]
    job = start_on(network.hosts[launch_host], "-np", "4", "-H", "a:2,b:2", *REDUCE)
    wait_ready(job, 4)
    with cut_off(network, b, how):
        cut = time.monotonic()
        eventually(lambda: len(failures(job)) == 2, f"ranks 0 and 1 have raised; there is:\n{job}", PATIENCE_S)
        for failure in failures(job):
            assert failure.rank in (0, 1)
            assert 1 < failure.when - cut < PEER_SILENCE_S + 2, job
            assert re.search(r"\brank [23]\b.* host b\b", failure.message), job
        assert job.wait(PATIENCE_S) == 1, job
        assert time.monotonic() - cut < SSH_SILENCE_S + 10, job
        # Nobody could tell the ranks of host b: they notice by themselves.
        eventually(lambda: not b.ranks(), "the ranks of host b have ended", PATIENCE_S)
        assert time.monotonic() - cut < SSH_SILENCE_S + 10
        eventually(lambda: not network.hosts["a"].job_processes(), "host a is quiet", 5)
    assert_nothing_left(network, job, PATIENCE_S)


# LeaseWatch (launcher/process/lease_watch.h): the silence, and the interval in which it is looked for.
LEASE_SILENCE_S = 20.0 + 5.0


@pytest.mark.slow
@pytest.mark.parametrize("how", ["cable", "interface"])
def test_stubborn_ranks_behind_a_cut_network_end_as_well(network: Network, start_on: StartOn, how: str) -> None:
    """While it is still cut. Only sshd's own process waits on, for as long as TCP does."""
    b = network.hosts["b"]
    job = start_stubborn(network, start_on, "a")
    with cut_off(network, b, how):
        cut = time.monotonic()
        assert job.wait(PATIENCE_S) == 1, job
        assert "horovodrun: lost host b: " in job.err
        eventually(
            lambda: all(text.startswith("sshd: ") for text in b.job_processes().values()),
            "nothing of the job is left on host b",
            PATIENCE_S,
        )
        assert time.monotonic() - cut < LEASE_SILENCE_S + 2 + 5  # from TERM to KILL, and to end
    assert_nothing_left(network, job, PATIENCE_S)


@pytest.mark.slow
def test_a_stopped_launcher_loses_no_host(network: Network, start_on: StartOn, tmp_path: Path) -> None:
    """As Ctrl-Z does: for longer than any silence that counts as a death."""
    end = tmp_path / "end"
    job = start_on(network.hosts["a"], "-np", "2", "-H", "a:1,b:1", *REDUCE, "--until", str(end))
    wait_ready(job, 2)
    job.signal(signal.SIGSTOP)
    resume = time.monotonic() + LEASE_SILENCE_S + 5
    pids = {**network.hosts["a"].ranks(), **network.hosts["b"].ranks()}
    while time.monotonic() < resume:
        assert {**network.hosts["a"].ranks(), **network.hosts["b"].ranks()} == pids, job
        time.sleep(0.5)
    job.signal(signal.SIGCONT)
    end.touch()
    assert job.wait(PATIENCE_S) == 0, job
    assert_nothing_left(network, job)
