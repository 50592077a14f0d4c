"""`horovodrun --check` finds hosts that each answer the launcher, and do not reach each other."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
from hosts_job import StartOn, assert_nothing_left
from launcher_job import RunningJob
from netns import PATIENCE_S, Host, Network

PAIRS = ("a to b", "a to c", "b to a", "b to c", "c to a", "c to b")


def check(network: Network, start_on: StartOn, *flags: str) -> RunningJob:
    """The doctor, on c, has looked at all three hosts."""
    job = start_on(network.hosts["c"], "--check", "-H", "a:1,b:1,c:1", *flags, sys.executable)
    job.wait(4 * PATIENCE_S)
    assert_nothing_left(network, job)
    return job


def pairs_of(job: RunningJob) -> dict[str, Any]:
    pairs = {f"{pair['from']} to {pair['to']}": pair for pair in json.loads(job.out)["routes"]["pairs"]}
    assert tuple(pairs) == PAIRS, job
    return pairs


def levels_of(job: RunningJob) -> dict[str, str]:
    return {name: pair["level"] for name, pair in pairs_of(job).items() if pair["level"] != "OK"}


def lost_on_the_way(host: Host, other: Host) -> AbstractContextManager[None]:
    """What the host sends to the other goes to a card that nobody has: no answer, and nobody says so."""
    entry = f"{other.address} dev {host.interface}"
    return host.changed(f"ip neigh replace {entry} lladdr 02:00:00:00:00:77 nud permanent", f"ip neigh del {entry}")


@contextlib.contextmanager
def forbidden(host: Host, other: Host, ports: str) -> Iterator[None]:
    """A firewall on the host, which lets it call other ports of the other, ssh's for one."""
    rule = f"to {other.address} ipproto tcp dport {ports} prohibit pref 10"
    try:
        host.shell(f"ip rule add {rule}")
    except RuntimeError as error:
        pytest.skip(f"no rules for ports here: {error}")
    try:
        yield
    finally:
        host.shell(f"ip rule del {rule}")


def second_address(host: Host, address: str) -> AbstractContextManager[None]:
    """One of the same interface, to which no other host has a route."""
    card = f"{address}/24 dev {host.interface}"
    return host.changed(f"ip addr add {card}", f"ip addr del {card}")


def test_hosts_that_reach_each_other_are_well_and_a_useless_address_is_a_warning(
    network: Network, start_on: StartOn
) -> None:
    job = check(network, start_on, "--json")
    pairs = pairs_of(job)
    assert levels_of(job) == {}, job
    assert job.process.returncode == 0, job
    for name, pair in pairs.items():
        (one,) = pair["tries"]
        host = network.hosts[name[-1]]
        assert one["address"].startswith(host.address + ":"), job
        assert (one["interface"], one["outcome"], one["error"]) == (host.interface, "reached", None)
        assert one["round_trip_us"] > 0
    with second_address(network.hosts["b"], "10.88.0.2"):
        job = check(network, start_on, "--json")
    assert job.process.returncode == 0, job
    assert levels_of(job) == {"a to b": "WARN", "c to b": "WARN"}, job
    tries = {one["address"].partition(":")[0]: one for one in pairs_of(job)["a to b"]["tries"]}
    assert tries[network.hosts["b"].address]["outcome"] == "reached"
    assert tries["10.88.0.2"]["outcome"] == "no connection"
    assert pairs_of(job)["a to b"]["remedy"]


def test_a_pair_of_hosts_between_which_everything_is_lost_is_named(network: Network, start_on: StartOn) -> None:
    a, b = network.hosts["a"], network.hosts["b"]
    with lost_on_the_way(a, b):
        job = check(network, start_on)
    assert job.process.returncode == 1, job
    lines = job.out.splitlines()
    for one, other in ((a, b), (b, a)):
        (failure,) = (at for at, line in enumerate(lines) if line.startswith(f"  FAIL  {one.name} to {other.name}  "))
        assert f"{other.address}:" in lines[failure], job
        assert f"({other.interface}): no answer in time" in lines[failure], job
        assert "-> a firewall between them, or no route: " in lines[failure + 1], job
    assert lines[-1].startswith("3 hosts: 2 FAIL, "), job


def test_ports_that_one_host_may_not_call_are_found_in_that_direction(network: Network, start_on: StartOn) -> None:
    a, b = network.hosts["a"], network.hosts["b"]
    with forbidden(a, b, "21000-21009"):
        job = check(network, start_on, "--json", "--port-range", "21000-21009")
    assert job.process.returncode == 1, job
    assert levels_of(job) == {"a to b": "FAIL"}, job
    (one,) = pairs_of(job)["a to b"]["tries"]
    assert one["outcome"] == "no connection"
    assert one["round_trip_us"] is None
    hosts = json.loads(job.out)["hosts"]
    ports = {host["host"]: [c["found"] for c in host["checks"] if c["check"] == "ports"] for host in hosts}
    # The rendezvous of the job has one of c's.
    assert ports == {
        "a": ["10 of 21000-21009 free for 1 ranks"],
        "b": ["10 of 21000-21009 free for 1 ranks"],
        "c": ["9 of 21000-21009 free for 1 ranks"],
    }, job
