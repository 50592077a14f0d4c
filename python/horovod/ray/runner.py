"""RayExecutor: a job on a Ray cluster, from start() to shutdown()."""

from __future__ import annotations

import atexit
import contextlib
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray
from ray.util.client import ray as client

from horovod.ray._arguments import check_arguments
from horovod.ray._callbacks import Callback, listening
from horovod.ray._in_cluster import Adapter, InCluster
from horovod.ray.adapter import StaticAdapter, StaticParams
from horovod.ray.coordinator import Coordinator
from horovod.ray.elastic_adapter import ElasticAdapter, ElasticParams
from horovod.ray.settings import MiniSettings, create_settings

__all__ = ["RayExecutor", "MiniSettings", "Coordinator"]

_started: weakref.WeakSet[RayExecutor] = weakref.WeakSet()


def _shut_all_down() -> None:
    """For scripts that end without shutdown(): a job's secret would stay on its nodes."""
    for executor in list(_started):
        with contextlib.suppress(Exception):
            executor.shutdown()


atexit.register(_shut_all_down)  # after Ray's, so it runs before Ray ends


class RayExecutor:
    """Runs functions on the ranks of a job, which are actors of a Ray cluster.

    With `num_workers`, or `num_hosts`, the job is static: its workers live from start() to shutdown(). With
    `min_workers` it is elastic: its processes live only during run(), and may come and go. Used by one thread at a
    time. docs/api/ray.md has examples.

    Args:
        settings: What create_settings() returns.
        num_workers: The number of ranks, packed on as few nodes as possible. Not with `num_hosts`.
        num_hosts: A number of nodes, with `num_workers_per_host` ranks on each.
        num_workers_per_host: Ranks on each node, with `num_hosts`.
        cpus_per_worker: Processors that Ray reserves for each rank.
        use_gpu: Whether ranks get GPUs. CUDA_VISIBLE_DEVICES has all GPUs of the job's ranks on a node.
        gpus_per_worker: GPUs for each rank; default: 1 with `use_gpu`.
        use_current_placement_group: Whether ranks go to the placement group that the caller runs in, if it runs in one.
        min_workers: Elastic: the fewest ranks with which training goes on.
        max_workers: Elastic: the most ranks; default: all that the cluster has a place for.
        reset_limit: Elastic: the job fails instead of beginning another round after so many.
        cooldown_range: Elastic: two numbers of seconds from 1 to 3600; a node that failed is tried again after a time
            between them. Default: never.
        elastic_timeout: Elastic: seconds in which there must be `min_workers` places, at the start and later.
        override_discovery: Elastic: True, for the nodes are always those that Ray knows; with False the settings must
            have a `discovery` object, whose find_available_hosts_and_slots() says which of them are used.

    Raises:
        ValueError: `max_workers` without `min_workers` above 0, `min_workers` with `num_workers`, `gpus_per_worker`
            without `use_gpu`, or with it below 1, a number of something that is none.
    """

    def __init__(
        self,
        settings: MiniSettings,
        num_workers: int | None = None,
        num_hosts: int | None = None,
        num_workers_per_host: int = 1,
        cpus_per_worker: int = 1,
        use_gpu: bool = False,
        gpus_per_worker: int | None = None,
        use_current_placement_group: bool = True,
        min_workers: int | None = None,
        max_workers: int | None = None,
        reset_limit: int | None = None,
        cooldown_range: Sequence[int] | None = None,
        elastic_timeout: int = 600,
        override_discovery: bool = True,
    ) -> None:
        static = StaticParams(
            num_workers,
            num_hosts,
            num_workers_per_host,
            cpus_per_worker,
            use_gpu,
            gpus_per_worker,
            use_current_placement_group,
        )
        elastic = ElasticParams(
            min_workers,
            max_workers,
            cpus_per_worker,
            use_gpu,
            gpus_per_worker,
            reset_limit,
            cooldown_range,
            elastic_timeout,
            override_discovery,
        )
        check_arguments(static, elastic)
        self.settings = settings
        self._adapter: Adapter | None = None
        self._params: StaticParams | ElasticParams = static if min_workers is None else elastic

    create_settings = staticmethod(create_settings)

    def start(
        self,
        executable_cls: Callable[..., Any] | None = None,
        executable_args: Sequence[Any] | None = None,
        executable_kwargs: Mapping[str, Any] | None = None,
        extra_env_vars: Mapping[str, Any] | None = None,
    ) -> None:
        """Starts the workers, and in each `executable_cls(*executable_args, **executable_kwargs)`, if that is given.

        Args:
            executable_cls: A class; execute() gives its object to functions.
            executable_args: Its arguments, the same on all ranks.
            executable_kwargs: Its arguments by name.
            extra_env_vars: More variables for the environment of the workers.

        Raises:
            AssertionError: Both `num_workers` and `num_hosts` were given; a ValueError as well.
            ValueError: Neither was given.
            RuntimeError: They have been started before, or one of them died.
            TimeoutError: The cluster has no place for them, or they took too long. Nothing is left then.
        """
        if self._adapter is not None:
            raise RuntimeError("start(): the workers have been started; shutdown() ends them")
        if isinstance(self._params, StaticParams):
            self._params.check()
        adapter = self._make_adapter()
        try:
            adapter.start(executable_cls, executable_args, executable_kwargs, extra_env_vars)
        except BaseException:
            adapter.shutdown()
            raise
        self._adapter = adapter
        _started.add(self)

    def execute(self, fn: Callable[[Any], Any], callbacks: Sequence[Callback] | None = None) -> list[Any]:
        """The results of `fn(executable)` on all ranks, in rank order.

        Args:
            fn: A function, which gets the object of start()'s class on its rank, or None.
            callbacks: Functions that get each value that ranks give to horovod.ray.ray_logger.log().

        Raises:
            RuntimeError: start() was not called, a rank's process died, or what it raised or returned cannot be read.
            ray.exceptions.RayTaskError: What a rank raised; also an object of the class of that exception.
        """
        adapter = self._started("execute")
        with listening(callbacks) as queue:
            return adapter.run(fn, queue)

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        callbacks: Sequence[Callback] | None = None,
    ) -> list[Any]:
        """The results of `fn(*args, **kwargs)` on all ranks, in rank order; `callbacks` and errors as for execute()."""
        return self.execute(_Call(fn, args, kwargs), callbacks)

    def run_remote(
        self, fn: Callable[..., Any], args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None
    ) -> list[Any]:
        """Begins `fn(*args, **kwargs)` on all ranks, and returns Ray's references to the results in rank order.

        NotImplementedError in an elastic job.
        """
        return self._started("run_remote").run_remote(_Call(fn, args, kwargs))

    def execute_single(self, fn: Callable[[Any], Any]) -> Any:
        """The result of `fn(executable)` on rank 0; NotImplementedError in an elastic job, else errors as of execute().

        A function that uses Horovod's operations waits for the other ranks there.
        """
        return self._started("execute_single").run_single(fn)

    def shutdown(self) -> None:
        """Ends the workers, and removes the placement group if start() has made it. May be called again."""
        adapter, self._adapter = self._adapter, None
        _started.discard(self)
        if adapter is not None:
            adapter.shutdown()

    def _make_adapter(self) -> Adapter:
        if not ray.is_initialized():
            ray.init()  # as Ray does itself at the first call
        kind: type[Any] = StaticAdapter if isinstance(self._params, StaticParams) else ElasticAdapter
        if client.is_connected():
            return InCluster(kind, self.settings, self._params)
        adapter: Adapter = kind(self.settings, self._params)
        return adapter

    def _started(self, what: str) -> Adapter:
        if self._adapter is None:
            raise RuntimeError(f"{what}(): there are no workers; call start() first")
        return self._adapter


class _Call:
    """fn(*args, **kwargs) as a function of an executable, which it does not use."""

    def __init__(self, fn: Callable[..., Any], args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None) -> None:
        if not callable(fn):
            raise TypeError(f"fn={fn!r}, expected a function")
        self._fn, self._args, self._kwargs = fn, tuple(args or ()), dict(kwargs or {})

    def __call__(self, executable: Any) -> Any:
        return self._fn(*self._args, **self._kwargs)
