"""The rank's end of what an elastic job's launcher says."""

from __future__ import annotations

from typing import Any, Protocol

from horovod._common.native import core

__all__ = ["WorkerNotificationManager"]


class Listener(Protocol):
    """What is told of hosts: a State."""

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None: ...


class WorkerNotificationManager:
    """Passes on what is heard of hosts to the states that train. Used by one thread at a time.

    The session of rank 0 listens to the launcher of an elastic job; a State asks for its news at each commit.
    """

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def init(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing: whoever has a session hears of hosts. The arguments are accepted for compatibility."""
        del args, kwargs

    def poll(self) -> None:
        """Passes on what has come since the last call."""
        for milliseconds, update_res in core.take_host_updates():
            self.handle_hosts_updated(milliseconds / 1000, update_res)

    def register_listener(self, listener: Listener) -> None:
        """`listener` is told of hosts from now on."""
        if listener not in self._listeners:
            self._listeners.append(listener)

    def remove_listener(self, listener: Listener) -> None:
        """`listener` is told nothing more."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    def handle_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Hosts changed at `timestamp`, in the way that HostUpdateResult `update_res` says."""
        for listener in list(self._listeners):
            listener.on_hosts_updated(timestamp, update_res)
