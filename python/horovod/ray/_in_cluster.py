"""What an executor asks of the part that does the work, and that part as an actor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import ray
from ray.exceptions import RayTaskError

from horovod.ray.ray_logger import PickledSink

__all__ = ["Adapter", "InCluster"]

_SHUTDOWN_S = 15.0


class Adapter(Protocol):
    """What does the work: in this process, or in an actor in the cluster."""

    def start(
        self,
        executable_cls: Callable[..., Any] | None,
        executable_args: Sequence[Any] | None,
        executable_kwargs: Mapping[str, Any] | None,
        extra_env_vars: Mapping[str, Any] | None,
    ) -> None: ...
    def run(self, func: Callable[[Any], Any], queue: PickledSink | None) -> list[Any]: ...
    def run_remote(self, func: Callable[[Any], Any]) -> list[Any]: ...
    def run_single(self, func: Callable[[Any], Any]) -> Any: ...
    def shutdown(self) -> None: ...


class InCluster:
    """An adapter that is an actor, for a caller that reaches the cluster by Ray Client: workers could not reach it."""

    def __init__(self, kind: type[Adapter], *arguments: Any) -> None:
        # Two calls: one, and shutdown() beside it. A killed adapter would leave the job's secret on its nodes.
        self._actor: Any = ray.remote(kind).options(num_cpus=0, max_concurrency=2).remote(*arguments)
        self._running: Any = None

    def start(self, *arguments: Any) -> None:
        self._get("start", *arguments)

    def run(self, *arguments: Any) -> list[Any]:
        return list(self._get("run", *arguments))

    def run_remote(self, *arguments: Any) -> list[Any]:
        return list(self._get("run_remote", *arguments))

    def run_single(self, *arguments: Any) -> Any:
        return self._get("run_single", *arguments)

    def shutdown(self) -> None:
        if not ray.is_initialized():
            return
        # A call that was interrupted here may still run there: of a static job it ends with its workers, of an elastic
        # one with the actor.
        ray.wait([self._actor.shutdown.remote()], timeout=_SHUTDOWN_S)
        ray.kill(self._actor)

    def _get(self, method: str, *arguments: Any) -> Any:
        if self._running is not None and not ray.wait([self._running], timeout=0)[0]:
            raise RuntimeError("a call of another thread, or one that was interrupted, still runs: shutdown() ends it")
        self._running = getattr(self._actor, method).remote(*arguments)
        try:
            return ray.get(self._running)
        except RayTaskError as error:
            # What the adapter has raised, not that it was an actor that did.
            if isinstance(error.cause, Exception):
                raise error.cause from None
            raise
