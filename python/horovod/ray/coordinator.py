"""Who is which rank on which node, and the place where the ranks meet."""

from __future__ import annotations

from collections.abc import Sequence

import ray
from ray.util import get_node_ip_address

from horovod.ray.settings import MiniSettings
from horovod.runner.common.util.interfaces import ipv4_addresses
from horovod.runner.rendezvous import RendezvousServer

__all__ = ["Coordinator"]

_HERE_ALONE = "127.0.0.1"


class Coordinator:
    """Collects the ranks of a job and their nodes, and hosts their rendezvous in this process.

    `rendezvous` is the server once establish_rendezvous() has been called: who calls it stops that when the ranks have
    ended. `node_id_by_rank` is a dictionary: node -> its ranks. Used by one thread at a time.

    Args:
        settings: A MiniSettings, whose `nics` say where the rendezvous listens.
    """

    def __init__(self, settings: MiniSettings) -> None:
        self.settings = settings
        self.rendezvous: RendezvousServer | None = None
        self.node_id_by_rank: dict[str, list[int]] = {}
        self._hostnames: dict[str, None] = {}  # in the order in which they came

    @property
    def world_size(self) -> int:
        """The number of ranks that were registered."""
        return sum(map(len, self.node_id_by_rank.values()))

    @property
    def hostnames(self) -> set[str]:
        """The names of the hosts of all ranks."""
        return set(self._hostnames)

    @property
    def node_id_string(self) -> str:
        """The nodes and their numbers of ranks: `id:count,id:count`."""
        return ",".join(f"{node_id}:{len(ranks)}" for node_id, ranks in self.node_id_by_rank.items())

    def register(self, hostname: str, node_id: str, world_rank: int) -> None:
        """Adds rank `world_rank`, which runs on Ray's node `node_id` of the host `hostname`.

        ValueError if the rank is not a number from 0 on, or has been registered before.
        """
        if world_rank < 0:
            raise ValueError(f"world_rank={world_rank}, expected a rank from 0 on")
        for node, ranks in self.node_id_by_rank.items():
            if world_rank in ranks:
                raise ValueError(f"world_rank={world_rank} is registered already, on node {node}")
        self._hostnames[hostname] = None
        self.node_id_by_rank.setdefault(node_id, []).append(world_rank)

    def finalize_registration(self) -> dict[int, dict[str, int]]:
        """A dictionary: rank -> its HOROVOD_LOCAL_RANK, HOROVOD_LOCAL_SIZE, HOROVOD_CROSS_RANK, HOROVOD_CROSS_SIZE.

        Local ranks count the ranks of a node in their order; cross ranks the nodes that have that local rank.
        """
        numbers: dict[int, dict[str, int]] = {}
        nodes = [sorted(ranks) for ranks in self.node_id_by_rank.values()]
        nodes.sort(key=lambda ranks: ranks[0])
        for local_rank in range(max(map(len, nodes), default=0)):
            peers = [ranks for ranks in nodes if len(ranks) > local_rank]
            for cross_rank, ranks in enumerate(peers):
                numbers[ranks[local_rank]] = {
                    "HOROVOD_CROSS_RANK": cross_rank,
                    "HOROVOD_CROSS_SIZE": len(peers),
                    "HOROVOD_LOCAL_RANK": local_rank,
                    "HOROVOD_LOCAL_SIZE": len(ranks),
                }
        return numbers

    def establish_rendezvous(self, tls: bool = False) -> dict[str, str]:
        """Starts the server, and returns the variables by which all ranks find it. With `tls` it speaks TLS.

        It listens on loopback alone where all ranks are on this node, else on the address by which Ray's nodes know
        this one, or on those of `nics`. HOROVOD_SECRET_FILE is a file of this node.

        Raises:
            ValueError: No rank has been registered, or no interface of `nics` has an address here.
        """
        if self.world_size == 0:
            raise ValueError("establish_rendezvous(): no rank has been registered")
        self.rendezvous = RendezvousServer(self.world_size, listen=self._listen(), tls=tls)
        variables = self.rendezvous.environment(0)
        for name in ("HOROVOD_RANK", "HOROVOD_SIZE"):
            del variables[name]
        return variables | {"HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo"}

    def _listen(self) -> Sequence[str]:
        if set(self.node_id_by_rank) == {ray.get_runtime_context().get_node_id()}:
            return [_HERE_ALONE]
        if self.settings.nics is not None:
            return list(ipv4_addresses(list(self.settings.nics)).values())
        return [get_node_ip_address()]
