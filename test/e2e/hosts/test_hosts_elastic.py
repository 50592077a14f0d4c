"""Elastic jobs over ssh: hosts are lost, come, flap, and go."""

from __future__ import annotations

import os
import signal
import time

import pytest
from elastic_job import ElasticJob, StartElastic
from hosts_job import assert_nothing_left
from netns import PATIENCE_S, Network


def finish(network: Network, job: ElasticJob) -> None:
    job.stop()
    assert job.wait(PATIENCE_S) == 0, job
    job.assert_consistent()
    assert_nothing_left(network, job)


def test_hosts_come_flap_are_lost_and_return(network: Network, start_elastic_on: StartElastic) -> None:
    a, b, _ = network.hosts.values()
    flags = ("-np", "2", "--min-np", "1", "--blacklist-cooldown-range", "1", "2")
    # It begins on this machine alone, and listens for nobody else; then others come.
    job = start_elastic_on(a, *flags, hosts="a:2\n")
    job.wait_for_size(2, PATIENCE_S)
    assert {socket.address for socket in a.listeners() if socket.port != 22} == {"127.0.0.1"}
    job.set_hosts("a:1\nb:1\nc:1\n")
    job.wait_for_size(3, PATIENCE_S)
    job.set_hosts("b:1\nc:1\n")
    old = job.wait_for_size(2, PATIENCE_S)
    job.set_hosts("b:1\nc:1\na:1\n")
    now = job.wait_for_size(3, PATIENCE_S)
    assert [now[0], now[1]] == [old[0], old[1]]

    # Rank 0's host is lost: its agent dies.
    (agent,) = b.named("hvd-agent")
    killed = time.time()
    os.kill(agent, signal.SIGKILL)
    seconds = job.wait_for_restart([now[1], now[2]], killed, PATIENCE_S)
    print(f"without rank 0's host: {seconds:.2f} s")
    job.wait_for("lost host b: ")
    back = job.wait_for_size(3, PATIENCE_S)
    assert [back[0], back[1]] == [now[1], now[2]], job

    # One flaps, faster than ranks come to look.
    for _ in range(3):
        job.set_hosts("c:1\na:1\n")
        job.set_hosts("c:1\na:1\nb:1\n")
    job.set_hosts("c:1\n")
    alone = job.wait_for_size(1, PATIENCE_S)
    assert alone[0] == back[0]
    job.set_hosts("b:1\nc:1\n")
    two = job.wait_for_size(2, PATIENCE_S)
    assert two[0] == back[0]
    finish(network, job)


def test_a_host_whose_name_is_known_late_joins(network: Network, start_elastic_on: StartElastic) -> None:
    a, b, _ = network.hosts.values()
    names = network.folder / "hosts"  # the hosts file of them all
    job = start_elastic_on(a, "-np", "1", "--min-np", "1", "--blacklist-cooldown-range", "1", "1", hosts="a:1\n")
    job.wait_for_size(1, PATIENCE_S)
    job.set_hosts("a:1\nlate:1\n")
    job.wait_for("host late: unknown host", PATIENCE_S)
    with a.with_text(names, f"{names.read_text()}{b.address} late\n"):
        job.wait_for_size(2, PATIENCE_S)
    finish(network, job)


def test_a_job_whose_hosts_have_all_gone_ends(network: Network, start_elastic_on: StartElastic) -> None:
    a = network.hosts["a"]
    job = start_elastic_on(a, "-np", "1", "--min-np", "1", hosts="b:1\n")
    job.wait_for_size(1, PATIENCE_S)
    job.set_hosts("c:1\n")
    assert job.wait(PATIENCE_S) == 1, job
    assert "no process is left that has the job's state" in job.err, job
    assert_nothing_left(network, job)


def test_a_killed_launcher_leaves_nothing_on_any_host(network: Network, start_elastic_on: StartElastic) -> None:
    """It can't be started again and find its agents: the job ends with it, cleanly."""
    job = start_elastic_on(network.hosts["a"], "-np", "3", "--min-np", "1", hosts="a:1\nb:1\nc:1\n")
    job.wait_for_size(3, PATIENCE_S)
    job.process.kill()
    assert_nothing_left(network, job)


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["b", "c"])
def test_a_host_behind_a_cut_cable_is_done_without(
    network: Network, start_elastic_on: StartElastic, victim: str
) -> None:
    a = network.hosts["a"]
    job = start_elastic_on(a, "-np", "3", "--min-np", "1", hosts="b:1\nc:1\na:1\n")
    old = job.wait_for_size(3, PATIENCE_S)
    cut_rank = 0 if victim == "b" else 1
    survivors = [pid for rank, pid in old.items() if rank != cut_rank]
    with network.cable_pulled(network.hosts[victim]):
        cut = time.time()
        job.wait_for_restart(survivors, cut, PATIENCE_S)
        job.wait_for(f"lost host {victim}: ")
        print(f"went on after {time.time() - cut:.1f} s")
        # Who has committed once more than the others leads.
        assert set(job.wait_for_size(2, PATIENCE_S).values()) == set(survivors), job
    finish(network, job)
