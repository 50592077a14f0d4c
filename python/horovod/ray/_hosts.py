"""Ray's nodes as the hosts of an elastic job: a file that horovodrun reads again and again."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from ray._private import state

from horovod.ray._relay import AgentPlace
from horovod.runner.util.network import get_local_host_addresses

__all__ = ["HostsFile", "slots_of"]

_POLL_S = 1.0
_SETTLE_S = 2.0  # Ray says that late what has become free, by the end of another call for one


def slots_of(node: Mapping[str, Any], resources: Mapping[str, float]) -> int:
    """How many ranks that take `resources` each there is room for on a node of ray.nodes(); 0 on one that is gone."""
    if not node["Alive"]:
        return 0
    return _fit(node["Resources"], resources)


def _fit(available: Mapping[str, float], resources: Mapping[str, float]) -> int:
    return int(min(available.get(name, 0) // amount for name, amount in resources.items()))


class HostsFile:
    """Writes which hosts there are to `path`, from `with` on, on a thread of its own. Thread-safe.

    A host has slots for what is free on it, and none while that is nothing: its agent would wait for the whole job.
    Once it has an agent its slots stay.

    Args:
        path: The file. A new list takes the place of the old one at once.
        resources: What each rank takes: {"CPU": 1}.
        most: The most ranks of the job; no host has more slots.
        discovery: Says which nodes are used, by their addresses, and how many slots of them; None: all that there are.
    """

    def __init__(
        self,
        path: Path,
        resources: Mapping[str, float],
        most: int | None,
        discovery: Callable[[], Mapping[str, int]] | None,
    ) -> None:
        self._path = path
        self._resources = dict(resources)
        self._most = most
        self._discovery = discovery
        self._lock = threading.Lock()
        self._nodes: dict[str, tuple[str, int]] = {}  # guarded by _lock: host -> node id, slots
        self._agents: dict[str, int] = {}  # guarded by _lock: node id -> the slots that its agent was started with
        self._own_addresses = set(get_local_host_addresses())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="hvd-nodes")

    def wait_for(self, slots: int, seconds: float) -> None:
        """Returns when there are so many slots. TimeoutError, which says what there was, after so many seconds."""
        start = time.monotonic()
        while True:
            found, most = self._look()
            waited = time.monotonic() - start
            if found >= slots and (found >= most or waited > _SETTLE_S):
                return
            if found < slots and waited > seconds:
                wanted = ", ".join(f"{name}: {amount:g}" for name, amount in self._resources.items())
                raise TimeoutError(
                    f"{slots} ranks of {wanted} each were asked for; for {seconds:g} s the cluster had room for {found}"
                    + f", beside what else runs; alone for {most}" * (found < most)
                )
            self._stop.wait(_POLL_S)

    def place_of(self, host: str) -> AgentPlace:
        """Where the agent of `host` is to run. KeyError if there was never such a host."""
        with self._lock:
            node_id, slots = self._nodes[host]
            self._agents[node_id] = slots
        return AgentPlace(node_id, {name: amount * slots for name, amount in self._resources.items()})

    def __enter__(self) -> HostsFile:
        try:
            self._thread.start()
        except BaseException:  # Ctrl-C, for one, when the thread has begun
            self._stop.set()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(_POLL_S):
            try:
                self._look()
            except Exception as error:  # the hosts stay as they are until the next time
                warnings.warn(f"horovod.ray: the nodes cannot be listed: {error}", stacklevel=1)

    def _look(self) -> tuple[int, int]:
        """Lists the nodes, in the file too; how many slots they have, and would have if nothing else ran."""
        nodes = ray.nodes()
        found = self._find(nodes, state.available_resources_per_node())
        with self._lock:
            self._nodes.update(found)
        fresh = self._path.with_suffix(".new")
        fresh.write_text("".join(f"{host} slots={slots}\n" for host, (_, slots) in found.items()), encoding="ascii")
        os.replace(fresh, self._path)
        most = self._find(nodes, {node["NodeID"]: node["Resources"] for node in nodes})
        return sum(slots for _, slots in found.values()), sum(slots for _, slots in most.values())

    def _find(
        self, nodes: Sequence[Mapping[str, Any]], free: Mapping[str, Mapping[str, float]]
    ) -> dict[str, tuple[str, int]]:
        """Host -> node id and slots, with what is `free` by node id. A host that is named by an address of this
        machine, or by one that several nodes have, would not be reached by an actor on its node: these go by the node's
        id."""
        alive = [node for node in nodes if node["Alive"]]
        addresses = [node["NodeManagerAddress"] for node in alive]
        chosen = self._discovery() if self._discovery is not None else None
        hosts = {}
        for node, address in zip(alive, addresses, strict=True):
            slots = slots_of(node, self._resources) if chosen is None else chosen.get(address, 0)
            with self._lock:
                given = self._agents.get(node["NodeID"])
            if given is None:
                slots = min(slots, _fit(free.get(node["NodeID"], {}), self._resources))
            elif chosen is None:
                slots = min(slots, given)
            if self._most is not None:
                slots = min(slots, self._most)
            is_plain = addresses.count(address) == 1 and address not in self._own_addresses
            if slots > 0:
                hosts[address if is_plain else node["NodeID"]] = (node["NodeID"], slots)
        return hosts
