"""The rank's end of what an elastic job's launcher says."""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["WorkerNotificationManager"]


class Listener(Protocol):
    """What is told of hosts: a State."""

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None: ...


class WorkerNotificationManager:
    """Passes on what is heard of hosts to the states that train. Used by one thread at a time.

    No launcher says anything yet: elastic jobs are not built.
    """

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def init(self, *args: Any, **kwargs: Any) -> None:
        """Begins to listen to the launcher. There is nothing to listen to in a job whose ranks never change."""
        del args, kwargs

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
