"""Jobs on several hosts, all of them over a real ssh: the example trains, and every rank is where it belongs."""

from __future__ import annotations

import re
import sys

import pytest
from hosts_job import REDUCE, ROOT, StartOn, assert_nothing_left, namespace_of, wait_ready
from launcher_job import eventually
from netns import PATIENCE_S, Network

LAST_LINE = re.compile(r"test accuracy ([\d.]+) \(wanted 0\.95\); all 4 ranks hold bitwise equal parameters")


@pytest.mark.parametrize("launch_host", ["a", pytest.param("c", marks=pytest.mark.slow)])
def test_the_example_trains_on_two_hosts(network: Network, start_on: StartOn, launch_host: str) -> None:
    command = (sys.executable, str(ROOT / "examples/pytorch_digits.py"))
    job = start_on(network.hosts[launch_host], "-np", "4", "-H", "a:2,b:2", *command)
    ranks: list[set[int]] = []  # at the last look: at another one a rank may be in exec, where it is not seen

    def all_run() -> bool:
        ranks[:] = [set(host.ranks()) for host in network.hosts.values()]
        return sum(map(len, ranks)) == 4 or job.process.poll() is not None

    eventually(all_run, "all four ranks run", PATIENCE_S)
    assert ranks == [{0, 1}, {2, 3}, set()], job
    assert job.wait(PATIENCE_S * 5) == 0, job
    last = LAST_LINE.fullmatch(job.lines("[0]<stdout>:")[-1])
    assert last, job
    assert float(last[1]) >= 0.95
    assert_nothing_left(network, job)


@pytest.mark.parametrize("launch_host", ["a", "c"])
def test_every_rank_runs_on_its_host_and_knows_its_place(network: Network, start_on: StartOn, launch_host: str) -> None:
    a, b = network.hosts["a"], network.hosts["b"]
    said = ("--log-level", "debug") if launch_host == "a" else ()
    job = start_on(network.hosts[launch_host], "-np", "4", "-H", "a:3,b:2", *said, *REDUCE, "--elements", "300001")
    wait_ready(job, 4)
    ranks = {**a.ranks(), **b.ranks()}
    assert set(ranks) == {0, 1, 2, 3}
    assert {rank: namespace_of(pid) for rank, pid in ranks.items()} == {0: a.net, 1: a.net, 2: a.net, 3: b.net}
    topology = [job.lines(f"[{rank}]<stdout>:topology ") for rank in range(4)]
    assert topology == [
        ["0/4 local 0/3 cross 0/2"],
        ["1/4 local 1/3 cross 0/1"],
        ["2/4 local 2/3 cross 0/1"],
        ["3/4 local 0/1 cross 1/2"],
    ]
    # One agent a host, and ssh only to those that are not this one.
    assert [len(host.named("hvd-agent")) for host in (a, b, network.hosts["c"])] == [1, 1, 0]
    assert len(network.hosts[launch_host].named("ssh")) == (1 if launch_host == "a" else 2)
    job.process.terminate()
    assert job.wait() == 143
    # Hosts of unequal numbers of ranks go together.
    assert job.err.count("op=allreduce backend=hierarchical") == (4 if said else 0), job
    assert_nothing_left(network, job)
