"""Which of Ray's nodes are hosts of an elastic job, under which names and with how many slots."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from horovod.ray import _agent, _relay, _rsh, elastic
from horovod.ray._hosts import HostsFile, slots_of
from horovod.ray.elastic import RayHostDiscovery
from horovod.ray.elastic_adapter import ElasticAdapter, ElasticParams
from horovod.ray.settings import MiniSettings
from horovod.runner.elastic.discovery import FixedHosts, HostDiscovery
from jobs import eventually

CPU = {"CPU": 2}


def node(name: str, address: str, is_alive: bool = True, **resources: float) -> dict[str, Any]:
    return {"NodeID": name, "NodeManagerAddress": address, "Alive": is_alive, "Resources": resources}


def all_free(*nodes: Mapping[str, Any]) -> dict[str, Any]:
    return {each["NodeID"]: each["Resources"] for each in nodes}


def found(
    folder: Path,
    *nodes: Mapping[str, Any],
    most: int | None = None,
    discovery: Callable[[], Mapping[str, int]] | None = None,
) -> dict[str, tuple[str, int]]:
    return HostsFile(folder / "hosts", CPU, most, discovery)._find(nodes, all_free(*nodes))


def test_slots_are_what_all_resources_suffice_for() -> None:
    assert slots_of(node("a", "198.51.100.1", CPU=5), CPU) == 2
    assert slots_of(node("a", "198.51.100.1", CPU=8, GPU=3), {"CPU": 1, "GPU": 2}) == 1
    assert slots_of(node("a", "198.51.100.1", CPU=8), {"CPU": 1, "GPU": 1}) == 0
    assert slots_of(node("a", "198.51.100.1", is_alive=False, CPU=8), CPU) == 0


def test_hosts_go_by_address_where_that_leads_to_them_alone(tmp_path: Path) -> None:
    here, far = node("id-here", "127.0.0.1", CPU=2), node("id-far", "198.51.100.1", CPU=4)
    twins = [node(name, "198.51.100.2", CPU=2) for name in ("id-one", "id-two")]
    gone, small = node("id-gone", "198.51.100.3", is_alive=False, CPU=8), node("id-small", "198.51.100.4", CPU=1)
    assert found(tmp_path, here, far, *twins, gone, small) == {
        "id-here": ("id-here", 1),
        "198.51.100.1": ("id-far", 2),
        "id-one": ("id-one", 1),
        "id-two": ("id-two", 1),
    }


def test_no_host_has_more_slots_than_the_job_has_ranks(tmp_path: Path) -> None:
    assert found(tmp_path, node("id", "198.51.100.1", CPU=64), most=3) == {"198.51.100.1": ("id", 3)}


def test_slots_are_what_is_free_until_there_is_an_agent(tmp_path: Path) -> None:
    hosts = HostsFile(tmp_path / "hosts", CPU, None, None)
    nodes = [node("id-one", "198.51.100.1", CPU=8), node("id-two", "198.51.100.2", CPU=8)]

    def look(**free: float) -> dict[str, int]:
        found = hosts._find(nodes, {f"id-{name}": {"CPU": cpus} for name, cpus in free.items()})
        hosts._nodes.update(found)
        return dict(found.values())

    assert look(one=5) == {"id-one": 2}
    assert look(one=7, two=1) == {"id-one": 3}
    hosts.place_of("198.51.100.1")
    assert look(one=0, two=8) == {"id-one": 3, "id-two": 4}
    assert look(one=8, two=8) == {"id-one": 3, "id-two": 4}


def test_a_discovery_of_the_settings_chooses_among_the_nodes(tmp_path: Path) -> None:
    nodes = [node("id-one", "198.51.100.1", CPU=8), node("id-two", "198.51.100.2", CPU=8)]
    chosen = {"198.51.100.2": 1, "198.51.100.9": 4}
    assert found(tmp_path, *nodes, discovery=lambda: chosen) == {"198.51.100.2": ("id-two", 1)}


class EveryOther(HostDiscovery):
    """A user's: of the nodes that Ray has, each second one."""

    def __init__(self) -> None:
        self.nodes = RayHostDiscovery(cpus_per_slot=2)

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        return dict(list(self.nodes.find_available_hosts_and_slots().items())[::2])


@pytest.mark.parametrize("discovery", [EveryOther(), FixedHosts({"198.51.100.1": 1, "198.51.100.3": 1})])
def test_the_discovery_of_an_executors_settings_makes_the_list_that_horovodrun_reads(
    monkeypatch: pytest.MonkeyPatch, discovery: HostDiscovery
) -> None:
    nodes = [node(f"id-{number}", f"198.51.100.{number}", CPU=number + 2) for number in (1, 2, 3)]
    monkeypatch.setattr("ray.nodes", lambda: nodes)
    monkeypatch.setattr("ray._private.state.available_resources_per_node", lambda: all_free(*nodes))
    lists: list[str] = []

    def run_job(flags: list[str], *_: Any, **__: Any) -> list[Any]:
        lists.append(Path(flags[flags.index("--hostfile") + 1]).read_text())
        return ["done"]

    monkeypatch.setattr("horovod.ray.elastic_adapter.run_function_job", run_job)
    settings: Any = MiniSettings()
    settings.discovery = discovery
    params = ElasticParams(2, None, 2, False, None, None, None, 60, override_discovery=False)
    expected = discovery.find_available_hosts_and_slots()
    assert ElasticAdapter(settings, params).run(print) == ["done"]
    assert lists == ["".join(f"{host} slots={slots}\n" for host, slots in expected.items())]
    assert list(expected) == ["198.51.100.1", "198.51.100.3"]


def test_hosts_come_and_go_by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [node(f"id-{number}", f"198.51.100.{number}", CPU=2) for number in range(4)]
    monkeypatch.setattr("ray.nodes", lambda: nodes)
    discovery = elastic.TestDiscovery(1, 3, change_frequency_s=0, cpus_per_slot=2, verbose=False)
    seen = [len(discovery.find_available_hosts_and_slots()) for _ in range(50)]
    assert seen[:2] == [4, 3]
    assert {abs(after - before) for before, after in pairwise(seen)} == {1}
    assert set(seen[1:]) <= {1, 2, 3}
    patient = elastic.TestDiscovery(1, 3, change_frequency_s=600, cpus_per_slot=2)
    assert [len(patient.find_available_hosts_and_slots()) for _ in range(3)] == [4] * 3


def test_without_override_there_must_be_a_discovery() -> None:
    params = ElasticParams(1, None, 1, False, None, None, None, 600, override_discovery=False)
    with pytest.raises(ValueError, match="override_discovery=False, but the settings have no discovery"):
        ElasticAdapter(MiniSettings(), params)


def test_a_variable_of_several_lines_is_refused() -> None:
    adapter = ElasticAdapter(MiniSettings(), ElasticParams(1, None, 1, False, None, None, None, 600, True))
    with pytest.raises(ValueError, match=r"extra_env_vars: ONE='a\\nb', expected one line"):
        adapter.start(extra_env_vars={"ONE": "a\nb"})


@pytest.mark.parametrize(("cpus", "extra", "threads"), [(3, {}, "3"), (0.5, {}, "1"), (3, {"OMP_NUM_THREADS": 7}, "7")])
def test_ranks_have_threads_for_their_own_processors(tmp_path: Path, cpus: float, extra: Any, threads: str) -> None:
    adapter = ElasticAdapter(MiniSettings(), ElasticParams(1, None, cpus, False, None, None, None, 600, True))
    adapter.start(extra_env_vars=extra)
    adapter._flags(tmp_path, "name")
    assert (tmp_path / "variables").read_text().splitlines() == [f"OMP_NUM_THREADS={threads}"]


def no_place(host: str) -> _relay.AgentPlace:
    raise KeyError(host)


def test_paths_with_spaces_and_long_ones_reach_the_relay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "a b" / ("long" * 30) / "_rsh.py"
    program.parent.mkdir(parents=True)
    program.write_text(Path(_rsh.__file__).read_text())
    monkeypatch.setattr(_rsh, "__file__", str(program))
    adapter = ElasticAdapter(MiniSettings(), ElasticParams(1, None, 1, False, None, None, None, 600, True))
    with _relay.AgentRelay(no_place, seconds=1) as relay:
        flags = adapter._flags(program.parent, relay.name)
        words = shlex.split(flags[flags.index("--rsh") + 1])
        called = [word.replace("{host}", "the host") for word in words]
        run = subprocess.run([*called, "horovodrun"], timeout=30, stderr=subprocess.PIPE, text=True)
    assert run.returncode == 1
    assert run.stderr == "horovod.ray: no agent: 'the host'\n"


def test_an_interrupt_while_a_thread_begins_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def begin(thread: threading.Thread) -> None:
        start(thread)
        raise KeyboardInterrupt

    before = set(threading.enumerate())
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", begin)
        for context in (_relay.AgentRelay(no_place, seconds=1), HostsFile(tmp_path / "hosts", CPU, None, None)):
            with pytest.raises(KeyboardInterrupt), context:
                pass
    eventually(lambda: set(threading.enumerate()) <= before, "they have ended", 30)


def test_another_user_is_no_relay(monkeypatch: pytest.MonkeyPatch) -> None:
    with _relay.AgentRelay(no_place, seconds=1) as relay:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        monkeypatch.setattr(sys, "argv", ["_rsh.py", relay.name, "host", "horovodrun"])
        assert _rsh.main() == 255
        with socket.socket(socket.AF_UNIX) as stranger:  # who does not look who listens
            stranger.settimeout(30)
            stranger.connect(f"\0{relay.name}")
            assert stranger.recv(1) == b""


def test_an_agent_does_not_take_the_login_that_started_ray_for_its_launchers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "192.0.2.1 5 192.0.2.2 22")
    monkeypatch.setenv("OF_THE_USER", "1")
    monkeypatch.setattr(_agent, "find_launcher", lambda: "/usr/bin/env")
    agent = _agent.NodeAgent()
    agent.start([], hears=False)
    agent.close_input()
    printed = b"".join(iter(lambda: agent.read("stdout"), b"")).decode()
    assert agent.wait() == 0
    assert "OF_THE_USER=1\n" in printed
    assert "SSH_CONNECTION" not in printed
