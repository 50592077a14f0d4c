"""Values that ranks report while they train, to the callbacks of the executor."""

from __future__ import annotations

import warnings
from typing import Any, Protocol

from horovod import _env

__all__ = ["configure", "log"]


class Sink(Protocol):
    """Takes what is logged: a queue of Ray, for one."""

    def put(self, item: Any) -> None: ...


class _Logger:
    """Where log() puts what it is given; log() is a function of the module, so there is one in a process."""

    def __init__(self) -> None:
        self._sink: Sink | None = None
        self._has_warned = False

    def configure(self, queue: Sink | None) -> None:
        self._sink = queue
        self._has_warned = False

    def log(self, info_dict: dict[str, Any]) -> None:
        if self._sink is not None:
            self._sink.put(info_dict)
        elif not self._has_warned and _env.get("HOROVOD_RANK") in (None, "0"):
            self._has_warned = True
            warnings.warn(
                "horovod.ray.ray_logger.log(): nobody listens here. Give run() or execute() callbacks, which hear of "
                "what rank 0 logs",
                stacklevel=3,
            )


_logger = _Logger()


def configure(queue: Sink | None) -> None:
    """What log() is given goes to `queue`, an object with put(); None: to nobody."""
    _logger.configure(queue)


def log(info_dict: dict[str, Any]) -> None:
    """Gives `info_dict` to the callbacks of run() or execute(), in the process that called it; on rank 0 alone.

    Where nobody listens to rank 0 it warns, once.
    """
    _logger.log(info_dict)
