"""Who runs a function on ranks for somebody that only knows the interface."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from horovod.spark._driver import active_context
from horovod.spark._run import run

__all__ = ["Backend", "SparkBackend", "default_num_proc"]


def default_num_proc() -> int:
    """`spark.default.parallelism` of the active SparkContext; Exception without one."""
    return int(active_context().defaultParallelism)


class Backend(ABC):
    """Runs a function on ranks."""

    @abstractmethod
    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        env: Mapping[str, str | None] | None = None,
    ) -> list[Any]:
        """Calls `fn(*args, **kwargs)` on each rank and returns the results in rank order.

        `env` has variables of the ranks; None removes one.
        """

    @abstractmethod
    def num_processes(self) -> int:
        """The number of ranks that run() has."""


class SparkBackend(Backend):
    """Runs functions by horovod.spark.run(). Ranks do not get their executor's CUDA_VISIBLE_DEVICES: they see all GPUs
    of their host, and choose by local rank.

    Args:
        num_proc: The number of ranks; default: default_num_proc(), now.
        env: Variables of all ranks; those given to run() win.
        kwargs: Other arguments of horovod.spark.run().
    """

    def __init__(
        self, num_proc: int | None = None, env: Mapping[str, str | None] | None = None, **kwargs: Any
    ) -> None:
        self._num_proc = num_proc or default_num_proc()
        self._env = dict(env or {})
        self._kwargs = kwargs

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        env: Mapping[str, str | None] | None = None,
    ) -> list[Any]:
        wanted = {**self._env, **(env or {}), "CUDA_VISIBLE_DEVICES": None}
        return run(fn, args, kwargs, num_proc=self._num_proc, env=wanted, **self._kwargs)

    def num_processes(self) -> int:
        """The number of ranks that run() has."""
        return self._num_proc
