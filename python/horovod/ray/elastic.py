"""Elastic jobs under the names that they had before RayExecutor took `min_workers`."""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray

from horovod.ray._arguments import check_count, check_gpus
from horovod.ray._callbacks import Callback
from horovod.ray._hosts import slots_of
from horovod.ray.runner import RayExecutor
from horovod.ray.settings import MiniSettings
from horovod.runner.elastic.discovery import HostDiscovery

__all__ = ["ElasticRayExecutor", "RayHostDiscovery", "TestDiscovery"]


class RayHostDiscovery(HostDiscovery):
    """The living nodes of the cluster as hosts.

    Args:
        use_gpu: Whether each slot has GPUs.
        cpus_per_slot: Processors of a slot.
        gpus_per_slot: GPUs of a slot, with `use_gpu`.
    """

    def __init__(self, use_gpu: bool = False, cpus_per_slot: int = 1, gpus_per_slot: int = 1) -> None:
        self._resources = {"CPU": cpus_per_slot} | ({"GPU": gpus_per_slot} if use_gpu else {})

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """A dictionary: address of a node -> its slots, by all that it has, whether or not that is in use."""
        found = [(node["NodeManagerAddress"], slots_of(node, self._resources)) for node in ray.nodes()]
        return {address: slots for address, slots in found if slots > 0}


class TestDiscovery(RayHostDiscovery):
    """The nodes of the cluster, of which some seem to come and go by chance: for tests of elastic jobs.

    Args:
        min_hosts: With so many or fewer, one comes back.
        max_hosts: With so many or more, one goes.
        change_frequency_s: Seconds between two changes.
        use_gpu: As for RayHostDiscovery, like the next two.
        cpus_per_slot: Processors of a slot.
        gpus_per_slot: GPUs of a slot.
        verbose: Whether changes are printed.
    """

    __test__ = False  # for pytest, which goes by the name

    def __init__(
        self,
        min_hosts: int,
        max_hosts: int,
        change_frequency_s: float,
        use_gpu: bool = False,
        cpus_per_slot: int = 1,
        gpus_per_slot: int = 1,
        verbose: bool = True,
    ) -> None:
        super().__init__(use_gpu, cpus_per_slot, gpus_per_slot)
        self._min_hosts, self._max_hosts, self._period_s = min_hosts, max_hosts, change_frequency_s
        self._verbose = verbose
        self._last: float | None = None  # when there was a change, or the first call
        self._gone: set[str] = set()

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """A dictionary: address of a node -> its slots, without the nodes that have gone."""
        hosts = super().find_available_hosts_and_slots()
        now = time.monotonic()
        if self._last is None:
            self._last = now
        elif now - self._last >= self._period_s:
            self._last = now
            self._change(set(hosts))
        return {host: slots for host, slots in hosts.items() if host not in self._gone}

    def _change(self, hosts: set[str]) -> None:
        self._gone &= hosts  # one that is lost comes back as any other
        here = len(hosts) - len(self._gone)
        adds = here <= self._min_hosts or (here < self._max_hosts and random.random() < 0.5)
        choices = sorted(self._gone if adds else hosts - self._gone)
        if not choices:
            return
        host = random.choice(choices)
        self._gone ^= {host}
        if self._verbose:
            print(f"TestDiscovery: {host} {'comes back' if adds else 'goes'}", flush=True)


@dataclass
class ElasticSettings(MiniSettings):
    """The settings of an ElasticRayExecutor; see its create_settings()."""

    min_num_proc: int = 1
    max_num_proc: int | None = None
    reset_limit: int | None = None
    cooldown_range: Sequence[int] | None = None
    elastic_timeout: int = 600
    elastic: bool = True
    discovery: Any = None


class ElasticRayExecutor:
    """RayExecutor with `min_workers` under its older name; deprecated.

    Args:
        settings: What create_settings() returns.
        use_gpu: Whether each slot has GPUs.
        cpus_per_slot: Processors of a slot.
        gpus_per_slot: GPUs of a slot, with `use_gpu`; default: 1.
        env_vars: More variables for the environment of the ranks.
        override_discovery: As for RayExecutor.

    Raises:
        ValueError: `gpus_per_slot` without `use_gpu`, or with it below 1, and as for RayExecutor.
    """

    def __init__(
        self,
        settings: ElasticSettings,
        use_gpu: bool = False,
        cpus_per_slot: int = 1,
        gpus_per_slot: int | None = None,
        env_vars: Mapping[str, Any] | None = None,
        override_discovery: bool = True,
    ) -> None:
        warnings.warn(
            "ElasticRayExecutor: use RayExecutor(settings, min_workers=...)", DeprecationWarning, stacklevel=2
        )
        check_gpus(use_gpu, "gpus_per_slot", gpus_per_slot)
        check_count("cpus_per_slot", cpus_per_slot)
        self._env_vars = dict(env_vars or {})
        self._executor = RayExecutor(
            settings,
            min_workers=settings.min_num_proc,
            max_workers=settings.max_num_proc,
            cpus_per_worker=cpus_per_slot,
            use_gpu=use_gpu,
            gpus_per_worker=gpus_per_slot,
            reset_limit=settings.reset_limit,
            cooldown_range=settings.cooldown_range,
            elastic_timeout=settings.elastic_timeout,
            override_discovery=override_discovery,
        )

    @staticmethod
    def create_settings(
        min_num_proc: int = 1,
        max_num_proc: int | None = None,
        reset_limit: int | None = None,
        elastic_timeout: int = 600,
        timeout_s: float = 30,
        ssh_identity_file: str | None = None,
        nics: Sequence[str] | None = None,
        min_np: int | None = None,
        max_np: int | None = None,
        **kwargs: Any,
    ) -> ElasticSettings:
        """The settings of an executor.

        Args:
            min_num_proc: The fewest ranks with which training goes on.
            max_num_proc: The most ranks.
            reset_limit: The job fails instead of beginning another round after so many.
            elastic_timeout: Seconds in which there must be `min_num_proc` slots, at the start and later.
            timeout_s: Seconds in which an agent has to start, once there is room for it.
            ssh_identity_file: Has no effect: Ray starts the agents.
            nics: As for RayExecutor.create_settings().
            min_np: The old name of `min_num_proc`.
            max_np: The old name of `max_num_proc`.
            kwargs: More settings: cooldown_range, discovery, placement_group_timeout_s, verbose.

        Raises:
            TypeError: `kwargs` has something else.
        """
        for name, value in {"min_np": min_np, "max_np": max_np}.items():
            if value is not None:
                new = name.replace("np", "num_proc")
                warnings.warn(f"create_settings: {name} is called {new}", DeprecationWarning, stacklevel=2)
        return ElasticSettings(
            min_num_proc=min_num_proc if min_np is None else min_np,
            max_num_proc=max_num_proc if max_np is None else max_np,
            reset_limit=reset_limit,
            elastic_timeout=elastic_timeout,
            timeout_s=timeout_s,
            ssh_identity_file=ssh_identity_file,
            nics=nics,
            **kwargs,
        )

    def start(self) -> None:
        """Makes the executor ready for run(); nothing runs yet."""
        self._executor.start(extra_env_vars=self._env_vars)

    def run(self, worker_fn: Callable[[], Any], callbacks: Sequence[Callback] | None = None) -> list[Any]:
        """The results of `worker_fn()` of the ranks of the last round, in rank order.

        `callbacks` get what ranks give to horovod.ray.ray_logger.log(). RuntimeError, with "Process name: <host>[<local
        rank>]" and "Exit code: <code>", when the job fails.
        """
        return self._executor.run(worker_fn, callbacks=callbacks)
