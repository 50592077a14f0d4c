"""Where workers are placed: side by side on few nodes, or equally many on each of several."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, get_placement_group, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from horovod.ray._calls import Place, gather
from horovod.ray.settings import MiniSettings
from horovod.ray.worker import BaseHorovodWorker

__all__ = ["BaseStrategy", "ColocatedStrategy", "PGStrategy", "create_placement_group"]

_ANY_BUNDLE = -1


def create_placement_group(
    resources_per_bundle: Mapping[str, float], num_bundles: int, pg_timeout: float, pg_strategy: str
) -> tuple[PlacementGroup, list[dict[str, float]]]:
    """A placement group that is ready, and its bundles.

    Args:
        resources_per_bundle: What each bundle reserves: {"CPU": 1}.
        num_bundles: How many there are.
        pg_timeout: Seconds in which the cluster must have a place for them.
        pg_strategy: PACK, SPREAD, STRICT_PACK or STRICT_SPREAD, as of Ray.

    Raises:
        TimeoutError: It had none. What was asked for, and what the cluster has, is in the message; nothing is left.
    """
    bundles = [dict(resources_per_bundle) for _ in range(num_bundles)]
    group = _new_group(bundles, pg_strategy)
    _wait_for_room(group, pg_timeout, pg_strategy)
    return group, bundles


def _new_group(bundles: list[dict[str, float]], kind: str) -> PlacementGroup:
    """It has a name: Ctrl-C in Ray's call may leave one that nobody else knows."""
    name = f"hvd-{secrets.token_hex(16)}"
    try:
        return placement_group(bundles, strategy=kind, name=name)
    except BaseException:
        with contextlib.suppress(ValueError):  # there is none
            remove_placement_group(get_placement_group(name))
        raise


def _wait_for_room(group: PlacementGroup, seconds: float, kind: str) -> None:
    """TimeoutError if the cluster has none in time; the group is removed then."""
    try:
        if group.wait(timeout_seconds=seconds):
            return
        bundles = group.bundle_specs
        raise TimeoutError(
            f"no placement within {seconds} s for {len(bundles)} x {_words(bundles[0])} ({kind}): "
            f"the cluster has {_cluster()}. Ask for less, add nodes, or wait longer (placement_group_timeout_s)"
        )
    except BaseException:
        remove_placement_group(group)
        raise


def _words(resources: Mapping[str, float]) -> str:
    return "{" + ", ".join(f"{name}: {amount:g}" for name, amount in sorted(resources.items())) + "}"


def _cluster() -> str:
    """What the nodes have in all, and what of it is free."""
    free: Mapping[str, float] = ray.available_resources()
    nodes = []
    for node in ray.nodes():
        if node["Alive"]:
            has = {name: node["Resources"].get(name, 0) for name in ("CPU", "GPU")}
            nodes.append(f"{node['NodeManagerHostname']} {_words(has)}")
    counted = {name: free.get(name, 0) for name in ("CPU", "GPU")}
    return f"{len(nodes)} node{'s' * (len(nodes) != 1)} ({'; '.join(nodes)}), of which {_words(counted)} is free"


class BaseStrategy:
    """Makes the workers of a job, in rank order: the ranks of a node follow one another.

    Used by one thread at a time, but for shutdown(), which ends a create_workers() of another, too. `placement_group`
    is where they are; shutdown() removes it if this has made it.

    Args:
        settings: A MiniSettings with the times that are waited.
        num_workers: The number of workers.
        resources: What each of them takes: {"CPU": 1, "GPU": 1}.
    """

    def __init__(self, settings: MiniSettings, num_workers: int, resources: Mapping[str, float]) -> None:
        self.settings = settings
        self.placement_group: PlacementGroup | None = None
        self.places: list[Place] = []
        self._num_workers = num_workers
        self._resources = dict(resources)
        self._owns_group = False
        self._is_over = False
        self._started: list[Any] = []

    @property
    def num_workers(self) -> int:
        """The number of workers that create_workers() makes."""
        return self._num_workers

    def create_workers(self) -> tuple[list[Any], list[Any]]:
        """All workers in rank order, and one worker of each node. `places` says then where each of them is.

        Raises:
            TimeoutError: The cluster has no place for them, or they have not started in time.
        """
        bundles = self._reserve()
        remote_class = ray.remote(BaseHorovodWorker)
        for index in bundles:
            self._started.append(
                remote_class.options(
                    num_cpus=self._resources["CPU"],
                    num_gpus=self._resources.get("GPU", 0),
                    scheduling_strategy=PlacementGroupSchedulingStrategy(
                        self.placement_group, placement_group_bundle_index=index
                    ),
                ).remote(world_rank=len(self._started), world_size=self.num_workers)
            )
        return self._in_rank_order()

    def shutdown(self) -> None:
        """Ends the workers, and removes the placement group if it was made here. May be called again."""
        self._is_over = True
        # A call that fails when its worker has ended: so nobody goes on while one of their processes is still there.
        ends = [worker.node_id.remote() for worker in self._started]
        for worker in self._started:
            ray.kill(worker)
        try:
            if ends:
                ray.wait(ends, num_returns=len(ends), timeout=self.settings.timeout_s)
        finally:
            self._started = []
            group, self.placement_group = self.placement_group, None
            if group is not None and self._owns_group:
                remove_placement_group(group)

    def _make_group(self, bundle: Mapping[str, float], count: int, kind: str) -> None:
        """Known to shutdown() before it has room."""
        self._owns_group = True
        group = self.placement_group = _new_group([dict(bundle) for _ in range(count)], kind)
        try:
            if self._is_over:
                remove_placement_group(group)
                raise RuntimeError("shutdown() was called before the workers had started")
            _wait_for_room(group, self.settings.placement_group_timeout_s, kind)
        except BaseException:
            self.placement_group = None
            raise

    def _reserve(self) -> Sequence[int]:
        """Sees to the placement group, and returns the bundle of each worker."""
        raise NotImplementedError

    def _start_timeout(self) -> tuple[float, str]:
        return self.settings.timeout_s, "wait longer (timeout_s)"

    def _in_rank_order(self) -> tuple[list[Any], list[Any]]:
        seconds, advice = self._start_timeout()
        anywhere = [Place(rank) for rank in range(self.num_workers)]
        found = gather([worker.node_id.remote() for worker in self._started], anywhere, "start", seconds, advice)
        names = gather([worker.hostname.remote() for worker in self._started], anywhere, "start", seconds, advice)
        nodes = list(dict.fromkeys(found))
        order = sorted(range(self.num_workers), key=lambda index: nodes.index(found[index]))
        self.places = [Place(rank, found[index], names[index]) for rank, index in enumerate(order)]
        workers = [self._started[index] for index in order]
        firsts = {place.node_id: workers[place.rank] for place in reversed(self.places)}
        return workers, [firsts[node] for node in nodes]


class ColocatedStrategy(BaseStrategy):
    """As many workers on each of several nodes (STRICT_SPREAD, a bundle for each node).

    Args:
        settings: As for BaseStrategy.
        num_hosts: The number of nodes.
        num_workers_per_host: The number of workers on each.
        use_gpu: Whether workers get GPUs.
        cpus_per_worker: Processors for each worker.
        gpus_per_worker: GPUs for each worker, with `use_gpu`.
    """

    def __init__(
        self,
        settings: MiniSettings,
        num_hosts: int,
        num_workers_per_host: int,
        use_gpu: bool = False,
        cpus_per_worker: float = 1,
        gpus_per_worker: int | None = None,
    ) -> None:
        resources = _resources(use_gpu, cpus_per_worker, gpus_per_worker)
        super().__init__(settings, num_hosts * num_workers_per_host, resources)
        self._num_hosts = num_hosts
        self._per_host = num_workers_per_host

    def _reserve(self) -> Sequence[int]:
        bundle = {name: amount * self._per_host for name, amount in self._resources.items()}
        self._make_group(bundle, self._num_hosts, "STRICT_SPREAD")
        return [host for host in range(self._num_hosts) for _ in range(self._per_host)]


class PGStrategy(BaseStrategy):
    """Workers on as few nodes as possible (PACK, a bundle for each), or in a placement group that is there.

    Args:
        settings: As for BaseStrategy.
        num_workers: The number of workers.
        use_gpu: Whether workers get GPUs.
        cpus_per_worker: Processors for each worker.
        gpus_per_worker: GPUs for each worker, with `use_gpu`.
        placement_group: The group that is used; None: the one that the caller runs in, else a new one.
        force_create_placement_group: Whether to make a new one in any case.
    """

    def __init__(
        self,
        settings: MiniSettings,
        num_workers: int,
        use_gpu: bool = False,
        cpus_per_worker: float = 1,
        gpus_per_worker: int | None = None,
        placement_group: PlacementGroup | None = None,
        force_create_placement_group: bool = False,
    ) -> None:
        super().__init__(settings, num_workers, _resources(use_gpu, cpus_per_worker, gpus_per_worker))
        if not force_create_placement_group:
            self.placement_group = placement_group or ray.util.get_current_placement_group()

    def _reserve(self) -> Sequence[int]:
        if self.placement_group is not None:
            # Which of its bundles have room is Ray's to find.
            return [_ANY_BUNDLE] * self.num_workers
        self._make_group(self._resources, self.num_workers, "PACK")
        return range(self.num_workers)

    def _start_timeout(self) -> tuple[float, str]:
        if self._owns_group or self.placement_group is None:
            return super()._start_timeout()
        bundles = " ".join(map(_words, self.placement_group.bundle_specs))
        advice = (
            f"{self.num_workers} x {_words(self._resources)} were asked for in the placement group of the caller, "
            f"whose bundles are {bundles}. Ask for less, or give use_current_placement_group=False"
        )
        # Room and start are one wait here: Ray does not say when there is room.
        return self.settings.placement_group_timeout_s + self.settings.timeout_s, advice


def _resources(use_gpu: bool, cpus_per_worker: float, gpus_per_worker: int | None) -> dict[str, float]:
    return {"CPU": cpus_per_worker} | ({"GPU": gpus_per_worker or 1} if use_gpu else {})
