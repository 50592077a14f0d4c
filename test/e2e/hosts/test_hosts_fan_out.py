"""--fan-out with real sshd: the launcher on host c logs in to a alone, and a to b."""

from __future__ import annotations

import os
import signal
import time

import pytest
from hosts_job import REDUCE, StartOn, assert_nothing_left, namespace_of
from launcher_job import RunningJob, eventually
from netns import PATIENCE_S, Network, parent_of

from jobs import assert_soon

# Ranks that end neither by TERM nor with their parent: with children in sessions of their own.
STUBBORN = ("sh", "-c", "trap '' TERM HUP INT; setsid sleep 1001 & sleep 1002 & echo ready; while :; do sleep 1; done")
TREE = ("-np", "3", "-H", "a:1,b:2", "--fan-out", "1")


def start_stubborn(network: Network, start_on: StartOn) -> RunningJob:
    job = start_on(network.hosts["c"], *TREE, *STUBBORN)
    eventually(lambda: job.out.count(">:ready\n") == 3, f"three ranks are ready; there is:\n{job}", PATIENCE_S)
    assert len(network.hosts["c"].named("ssh")) == 1
    (onward,) = network.hosts["a"].named("ssh")
    assert parent_of(onward) == parent_of(network.hosts["a"].ranks()[0])  # the agent of a
    return job


def test_ranks_below_meet_the_others(network: Network, start_on: StartOn) -> None:
    job = start_on(network.hosts["c"], *TREE, *REDUCE, "--elements", "1000")
    eventually(lambda: job.process.poll() is not None or job.out.count("ready") == 3, f"ready: {job}", PATIENCE_S)
    ranks = {name: network.hosts[name].ranks() for name in ("a", "b", "c")}
    assert [set(ranks[name]) for name in ("a", "b", "c")] == [{0}, {1, 2}, set()], job
    for pid in ranks["b"].values():
        assert namespace_of(pid) == network.hosts["b"].net
    job.signal(signal.SIGINT)
    assert job.wait(PATIENCE_S) == 130, job
    assert_nothing_left(network, job)


@pytest.mark.parametrize(
    ("host", "victim", "lost"),
    [
        ("c", "horovodrun", ""),
        pytest.param("c", "ssh", "a", marks=pytest.mark.slow),
        ("a", "hvd-agent", "a"),
        pytest.param("a", "hvd-guard", "a", marks=pytest.mark.slow),
        ("a", "ssh", "b"),
        pytest.param("b", "hvd-agent", "b", marks=pytest.mark.slow),
    ],
)
def test_whoever_dies_takes_along_what_is_below_it(network: Network, start_on: StartOn, host: str, victim: str, lost: str) -> None:

    def seconds() -> float:
        job = start_stubborn(network, start_on)
        (pid,) = network.hosts[host].named(victim)
        killed = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        assert job.wait() == (1 if lost else 137), job
        if lost:
            assert job.err.startswith(f"horovodrun: lost host {lost}: "), job
            assert job.err.count("lost host") == 1, job
        assert_nothing_left(network, job)
        return time.monotonic() - killed

    assert_soon(seconds, 1 + 2 + 5)  # time to raise, from TERM to KILL, and to end


def test_a_host_without_a_key_starts_nobody_and_is_told_once(network: Network, start_on: StartOn) -> None:
    a = network.hosts["a"]
    with a.with_text(a.home / ".ssh" / "id_ed25519", "no key\n"):
        job = start_on(network.hosts["c"], *TREE, "sh", "-c", "hostname; exec sleep 1000")
        eventually(lambda: len(job.out.splitlines()) == 3, f"three ranks run: {job}", PATIENCE_S)
        assert len(network.hosts["c"].named("ssh")) == 2
        assert network.hosts["a"].named("ssh") == []
        said = "horovodrun: --fan-out 1: hosts that others were to start are started from here instead: host a says: host b: "
        assert job.err.count("--fan-out") == 1
        assert said + "ssh refused the login" in job.err, job
        job.signal(signal.SIGTERM)
        assert job.wait(PATIENCE_S) == 143
    assert_nothing_left(network, job)


# LeaseWatch (launcher/process/lease_watch.h): the silence, and the interval in which it is looked for.
LEASE_SILENCE_S = 20.0 + 5.0


@pytest.mark.slow
@pytest.mark.parametrize("host", ["a", "b"])
def test_what_is_below_a_cut_network_ends_as_well(network: Network, start_on: StartOn, host: str) -> None:
    """While it is still cut. Only sshd's own processes wait on, for as long as TCP does."""
    job = start_stubborn(network, start_on)
    with network.cable_pulled(network.hosts[host]):
        cut = time.monotonic()
        assert job.wait(PATIENCE_S) == 1, job
        assert f"horovodrun: lost host {host}: " in job.err
        for name in ("a", "b"):
            eventually(
                lambda name=name: all(text.startswith("sshd: ") for text in network.hosts[name].job_processes().values()),  # type: ignore[misc]
                f"nothing of the job is left on host {name}",
                PATIENCE_S,
            )
        assert time.monotonic() - cut < LEASE_SILENCE_S + 2 + 5  # from TERM to KILL, and to end
    assert_nothing_left(network, job, PATIENCE_S)
