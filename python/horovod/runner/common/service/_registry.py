"""The dispatchers and workers that have registered with a compute service. Used on the service's event loop only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

LONGEST_ADDRESS = 512
MOST_WORKERS = 65536

Arguments = dict[str, Any]
Wait = tuple[asyncio.Event, Callable[[], str], Callable[[], Any]]  # the event, its description, the reply


def _number(arguments: Arguments, name: str) -> int:
    value = arguments.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name} must be a whole number, got {value!r}")
    return value


class _Dispatcher:
    """One dispatcher: its address and its workers, once known."""

    def __init__(self) -> None:
        self.address: str | None = None
        self.workers: set[int] = set()
        self.is_registered = asyncio.Event()
        self.has_its_workers = asyncio.Event()


class Registry:
    """The requests of clients. The await_ methods return what the service waits for.

    Wrong arguments raise IndexError or ValueError, which are sent to the client.
    """

    def __init__(self, dispatchers: int, workers_per_dispatcher: int) -> None:
        self._dispatchers = [_Dispatcher() for _ in range(dispatchers)]
        self._workers_per_dispatcher = workers_per_dispatcher
        self.is_shut_down = asyncio.Event()

    def _dispatcher(self, arguments: Arguments) -> _Dispatcher:
        number = _number(arguments, "dispatcher_id")
        if not 0 <= number < len(self._dispatchers):
            raise IndexError(f"dispatcher id {number} does not exist, there are 0 to {len(self._dispatchers) - 1}")
        return self._dispatchers[number]

    def register_dispatcher(self, arguments: Arguments) -> None:
        dispatcher = self._dispatcher(arguments)
        address = arguments.get("address")
        if not isinstance(address, str) or not 0 < len(address) <= LONGEST_ADDRESS:
            raise ValueError(f"a dispatcher's address must be a string of 1 to {LONGEST_ADDRESS} letters: {address!r}")
        if dispatcher.address not in (None, address):
            raise ValueError(
                f"dispatcher {arguments['dispatcher_id']} is registered with the address {dispatcher.address} already, "
                f"it cannot become {address}"
            )
        dispatcher.address = address
        dispatcher.is_registered.set()

    def register_worker(self, arguments: Arguments) -> None:
        dispatcher = self._dispatcher(arguments)
        worker = _number(arguments, "worker_id")
        if worker not in dispatcher.workers and len(dispatcher.workers) >= MOST_WORKERS:
            raise ValueError(f"dispatcher {arguments['dispatcher_id']} has the most workers it can, {MOST_WORKERS}")
        dispatcher.workers.add(worker)
        if len(dispatcher.workers) >= self._workers_per_dispatcher:
            dispatcher.has_its_workers.set()

    def await_dispatcher(self, arguments: Arguments) -> Wait:
        dispatcher = self._dispatcher(arguments)
        what = f"dispatcher {arguments['dispatcher_id']} to register"
        return dispatcher.is_registered, lambda: what, lambda: dispatcher.address

    def await_workers(self, arguments: Arguments) -> Wait:
        dispatcher = self._dispatcher(arguments)

        def what() -> str:
            number, have = arguments["dispatcher_id"], len(dispatcher.workers)
            return f"{self._workers_per_dispatcher} workers of dispatcher {number} to register, {have} have"

        return dispatcher.has_its_workers, what, lambda: None

    def await_shutdown(self, arguments: Arguments) -> Wait:
        del arguments
        return self.is_shut_down, lambda: "the shutdown request", lambda: None
