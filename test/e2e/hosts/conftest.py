"""Fixtures of the tests with several hosts: the network, made once, and jobs that are started on one of its hosts."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent / "launcher"))
sys.path.append(str(Path(__file__).parent.parent / "elastic"))

from elastic_job import ElasticJob, StartElastic
from hosts_job import ROOT, StartOn
from launcher_job import RunningJob
from netns import Host, Network, why_impossible


@pytest.fixture(scope="session")
def shared_network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    reason = why_impossible()
    if reason:
        pytest.skip(f"hosts cannot be made of namespaces: {reason}")
    network = Network(tmp_path_factory.mktemp("hosts"))
    try:
        network.build()
        yield network
    finally:
        network.close()


@pytest.fixture
def network(shared_network: Network) -> Iterator[Network]:
    """Hosts a, b and c. What a test leaves running there is ended, so that it can't disturb the next one."""
    yield shared_network
    shared_network.kill_jobs()


@pytest.fixture
def start_on(network: Network, horovodrun_path: str, tmp_path: Path) -> StartOn:
    """start_on(host, "-np", "2", ...) starts the launcher there."""

    def start(host: Host, *arguments: str, env: Mapping[str, str] | None = None) -> RunningJob:
        command = host.enter("env", "-C", str(ROOT), horovodrun_path, *arguments)
        return RunningJob(command, tmp_path, {"HOME": str(host.home), **(env or {})}, None, tmp_path)

    return start


@pytest.fixture
def start_elastic_on(network: Network, horovodrun_path: str, tmp_path: Path) -> StartElastic:
    """start_elastic_on(host, "-np", "2", ..., hosts="a\nb\n") starts the launcher of an elastic job there. `hosts` is what
    its discovery script prints, until set_hosts()."""

    def start(host: Host, *flags: str, hosts: str) -> ElasticJob:
        launcher = host.enter("env", "-C", str(tmp_path), horovodrun_path)
        discovery = ("--host-discovery-script", "cat hosts")
        return ElasticJob(launcher, tmp_path, (*flags, *discovery), hosts=hosts, env={"HOME": str(host.home)})

    return start
