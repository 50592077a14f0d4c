"""Hosts that call in, on networks of their own: no ssh anywhere."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from elastic_job import ElasticJob
from hosts_job import REDUCE, StartOn, assert_nothing_left, wait_ready
from launcher_job import RunningJob, eventually, make_token
from netns import PATIENCE_S, Network

LEASE_SILENCE_S = 20.0 + 5.0  # LeaseWatch: the silence, and the interval in which it is looked for


def gather(network: Network, start_on: StartOn, token: Path, *command: str) -> tuple[RunningJob, list[RunningJob]]:
    """A launcher on host c, which runs no rank, and hosts a and b that call it by its name."""
    shows = ("--token-file", str(make_token(token)))
    c = network.hosts["c"]
    job = start_on(c, "-np", "4", "--wait-for-hosts", "2", "--listen", c.address, *shows, *command)
    job.wait_for("waits for 2 hosts at ", PATIENCE_S)
    port = re.findall(rf"{c.address}:(\d+)\n", job.err)[0]
    return job, [start_on(network.hosts[name], "--join", f"c:{port}", *shows) for name in ("b", "a")]


def test_hosts_of_other_networks_call_in(network: Network, start_on: StartOn, tmp_path: Path) -> None:
    end = tmp_path / "end"
    job, hosts = gather(network, start_on, tmp_path / "token", *REDUCE, "--until", str(end))
    wait_ready(job, 4)
    assert sorted(network.hosts["a"].ranks()) == [0, 1]
    assert sorted(network.hosts["b"].ranks()) == [2, 3]
    assert {socket.address for socket in network.hosts["c"].listeners()} >= {network.hosts["c"].address}
    end.touch()
    assert job.wait(PATIENCE_S) == 0, job
    for host in hosts:
        assert host.wait(PATIENCE_S) == 0, host
    assert_nothing_left(network, job)


@pytest.mark.slow
def test_a_host_that_called_in_and_is_cut_off_is_lost(network: Network, start_on: StartOn, tmp_path: Path) -> None:
    """Both ends notice, while the network is still cut."""
    b = network.hosts["b"]
    job, hosts = gather(network, start_on, tmp_path / "token", "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done")
    eventually(lambda: job.out.count(">:ready\n") == 4, f"four ranks are ready; there is:\n{job}", PATIENCE_S)
    with network.cable_pulled(b):
        cut = time.monotonic()
        assert job.wait(PATIENCE_S) == 1, job
        assert "lost host b: the network between the hosts is gone" in job.err, job
        assert hosts[0].wait(PATIENCE_S) == 1, hosts[0]
        assert "and has ended what ran here: the network between the hosts is gone" in hosts[0].err, hosts[0]
        eventually(lambda: not b.job_processes(), "nothing of the job is left on host b", PATIENCE_S)
        assert time.monotonic() - cut < LEASE_SILENCE_S + 2 + 5  # from TERM to KILL, and to end
    assert_nothing_left(network, job, PATIENCE_S)


def test_an_elastic_job_takes_hosts_of_other_networks_as_they_call(
    network: Network, start_on: StartOn, horovodrun_path: str, tmp_path: Path
) -> None:
    """It begins on its own machine, and another host calls later, is lost, and comes back."""
    a, b, _ = network.hosts.values()
    shows = ("--token-file", str(make_token(tmp_path / "token")))
    flags = ("-np", "1", "--min-np", "1", "--wait-for-hosts", "1", "--listen", a.address, *shows)
    launcher = a.enter("env", "-C", str(tmp_path), horovodrun_path)
    job = ElasticJob(launcher, tmp_path, flags, env={"HOME": str(a.home)})
    job.wait_for("waits for 1 host at ", PATIENCE_S)
    place = re.findall(rf"{a.address}:\d+", job.err)[0]
    start_on(a, "--join", place, *shows)
    first = job.wait_for_size(1, PATIENCE_S)[0]
    for _ in range(2):
        other = start_on(b, "--join", place, *shows)
        ranks = job.wait_for_size(2, PATIENCE_S)
        assert ranks[0] == first
        assert list(b.ranks()) == [1]
        since = time.time()
        other.kill_everything()
        job.wait_for_restart([first], since, PATIENCE_S)
    job.stop()
    assert job.wait(PATIENCE_S) == 0, job
    job.assert_consistent()
    assert_nothing_left(network, job)
