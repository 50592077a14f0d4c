"""The compute service: an authenticated TCP server on a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import socket
import threading
from collections.abc import Collection, Coroutine, Hashable
from typing import Any

from horovod.runner.common.service import _admission, _wire
from horovod.runner.common.service._registry import Registry
from horovod.runner.common.util.interfaces import ipv4_addresses
from horovod.runner.common.util.timeout import TimeoutException

_log = logging.getLogger("horovod")

# The most that Linux has by default. Who waits in the backlog costs no file; when it is full the system drops requests
# to connect, and a client's system tries again after a second only.
_BACKLOG = 4096
_STOP_DEADLINE_S = 10.0
_PASSED_ON = (IndexError, ValueError, TimeoutException)


class ComputeService:
    """Registers `dispatchers` dispatchers, each with `workers_per_dispatcher` workers.

    Listens on the interfaces `nics`, a collection of names; None for all that have an IPv4 address. Answers only
    clients that have `key`, non-empty bytes. ValueError for counts below 1, an empty key, or unknown interfaces.
    """

    def __init__(
        self, dispatchers: int, workers_per_dispatcher: int, key: bytes, nics: Collection[str] | None = None
    ) -> None:
        for name, count in (("dispatchers", dispatchers), ("workers_per_dispatcher", workers_per_dispatcher)):
            if count <= 0:
                raise ValueError(f"ComputeService: {name} must be at least 1, got {count}")
        if not isinstance(key, bytes) or not key:
            raise ValueError("ComputeService: the key must be bytes, for example of secret.make_secret_key()")
        self._key = key
        self._registry = Registry(dispatchers, workers_per_dispatcher)
        self._admission = _admission.Admission(dispatchers * workers_per_dispatcher, self._hang_up)
        self._handlers: set[asyncio.Task[None]] = set()
        self._waiting: set[asyncio.Task[None]] = set()  # handlers of waits that shutdown() cancels
        self._told = 0
        self._refused = 0
        self._everybody_told = threading.Condition()
        self._was_asked = False  # by somebody who has the key
        self._asked_or_over = threading.Event()
        self._ending = threading.RLock()  # a signal's handler may end it in the middle of that
        self._sockets = {name: _listen(address) for name, address in ipv4_addresses(nics).items()}
        self._addresses = {name: [listener.getsockname()[:2]] for name, listener in self._sockets.items()}
        self._loop = asyncio.new_event_loop()
        self._servers: list[asyncio.Server] = []
        self._thread = threading.Thread(target=self._run, name="hvd-compute-service", daemon=True)
        self._thread.start()
        self._call(self._start())

    def addresses(self) -> dict[str, list[tuple[str, int]]]:
        """Where it listens: interface -> [(IPv4 address, port)], the interface of the default route first."""
        return {name: list(pairs) for name, pairs in self._addresses.items()}

    def get_port(self) -> int:
        """The port, an int, on the first interface of addresses()."""
        return int(next(iter(self._addresses.values()))[0][1])

    def shutdown(self) -> None:
        """Ends the service: clients in wait_for_shutdown() get their answer, other waits fail. May be called again, and
        by several threads: all return when it has ended."""
        with self._ending:
            if not self._thread.is_alive():
                return
            self._asked_or_over.set()
            self._call(self._stop())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        if self._refused:
            _log.warning("compute service: %d connections were refused, they did not show the key", self._refused)

    def wait_for_first_client(self) -> bool:
        """Waits, without a deadline, for the first client; False if shutdown() was called before one has come."""
        self._asked_or_over.wait()
        return self._was_asked

    def wait_for_clients(self, clients: int, timeout: float) -> bool:
        """Whether `clients` clients get their answer in wait_for_shutdown() within `timeout` seconds."""
        with self._everybody_told:
            return self._everybody_told.wait_for(lambda: self._told >= clients, timeout)

    def _run(self) -> None:
        self._loop.run_forever()
        left = asyncio.all_tasks(self._loop)  # of connections made at the end, or cancelled late
        for handler in left:
            handler.cancel()
        if left:
            self._loop.run_until_complete(asyncio.wait(left, timeout=_wire.REQUEST_DEADLINE_S))
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_STOP_DEADLINE_S)

    async def _start(self) -> None:
        for listener in self._sockets.values():
            server = await asyncio.start_server(
                self._accepted, sock=listener, backlog=_admission.ACCEPTS_PER_TURN, limit=2 * _wire.LONGEST_MESSAGE
            )
            listener.listen(_BACKLOG)  # for asyncio the backlog is how many it accepts in a turn, too
            self._servers.append(server)

    async def _stop(self) -> None:
        for server in self._servers:
            server.close()
        self._registry.is_shut_down.set()
        for handler in self._waiting:
            handler.cancel()
        if self._handlers:
            _, late = await asyncio.wait(self._handlers, timeout=_wire.REQUEST_DEADLINE_S)
            for handler in late:
                handler.cancel()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        host, *_ = writer.get_extra_info("peername") or ("",)  # none if it has left already
        if not self._admission.arrive(writer, _admission.source_of(host)):
            self._refused += 1
            writer.close()
            return
        self._handlers.add(task)
        try:
            await self._converse(reader, writer)
        except (_wire.BadMessage, ValueError):
            self._refused += 1  # without an answer
        except (OSError, EOFError, asyncio.TimeoutError):
            pass
        finally:
            self._handlers.discard(task)
            self._admission.leave(writer)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _hang_up(self, writer: Hashable) -> None:
        assert isinstance(writer, asyncio.StreamWriter)
        self._refused += 1
        writer.transport.abort()  # its handler reads the end

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello = await asyncio.wait_for(reader.readexactly(_wire.HELLO_LENGTH), _admission.INTRODUCTION_DEADLINE_S)
        client_nonce = _wire.open_hello(self._key, hello)
        self._admission.introduce(writer)
        nonce = secrets.token_bytes(_wire.NONCE_LENGTH)
        writer.write(_wire.greeting(nonce))
        context = _wire.request_context(nonce, client_nonce)
        message, digest = await asyncio.wait_for(self._read_request(reader, context), _wire.REQUEST_DEADLINE_S)
        if not self._admission.prove(writer):
            raise EOFError("others have taken its place")
        self._was_asked = True
        self._asked_or_over.set()
        try:
            reply = {"result": await self._answer(message, reader)}
        except _PASSED_ON as error:
            reply = {"error": type(error).__name__, "message": str(error)}
        writer.write(_wire.seal_reply(self._key, digest, reply))
        await asyncio.wait_for(writer.drain(), _wire.REQUEST_DEADLINE_S)
        if message.get("request") == "wait_for_shutdown" and "result" in reply:
            with self._everybody_told:
                self._told += 1
                self._everybody_told.notify_all()

    async def _read_request(self, reader: asyncio.StreamReader, context: bytes) -> tuple[dict[str, Any], bytes]:
        length = _wire.body_length(await reader.readexactly(_wire.LENGTH_LENGTH))
        sealed = await reader.readexactly(length + _wire.SEAL_LENGTH)
        return _wire.open_sealed(self._key, context, sealed)

    async def _answer(self, message: dict[str, Any], reader: asyncio.StreamReader) -> Any:
        request = message.get("request")
        if request == "ping":
            return None
        if request == "shutdown":
            self._registry.is_shut_down.set()
            return None
        if request in ("register_dispatcher", "register_worker"):
            getattr(self._registry, request)(message)
            return None
        waits = {
            "wait_for_dispatcher": self._registry.await_dispatcher,
            "wait_for_workers": self._registry.await_workers,
            "wait_for_shutdown": self._registry.await_shutdown,
        }
        if request not in waits:
            raise ValueError(f"unknown request {request!r}; both sides must use the same version of Horovod")
        timeout = message.get("timeout")
        if not isinstance(timeout, (int, float)) or not 0 <= timeout <= _wire.LONGEST_WAIT_S:
            raise ValueError(f"timeout must be 0 to {_wire.LONGEST_WAIT_S:g} seconds, got {timeout!r}")
        event, what, result = waits[str(request)](message)
        task = asyncio.current_task()
        assert task is not None
        if event is not self._registry.is_shut_down:
            self._waiting.add(task)
        try:
            if not await _wait_for(event, reader, timeout):
                raise TimeoutException(f"Timed out waiting for {what()}. Timeout after {timeout} seconds.")
            return result()
        finally:
            self._waiting.discard(task)


def _listen(address: str) -> socket.socket:
    listener = socket.create_server((address, 0), backlog=_BACKLOG)
    listener.setblocking(False)
    return listener


async def _wait_for(event: asyncio.Event, reader: asyncio.StreamReader, timeout: float) -> bool:
    """Whether the event is set within `timeout` seconds. EOFError if the client closes the connection."""
    if event.is_set():
        return True
    is_set = asyncio.ensure_future(event.wait())
    closed = asyncio.ensure_future(reader.read(1))
    try:
        await asyncio.wait({is_set, closed}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if closed.done() and not event.is_set():
            raise EOFError("the client has closed the connection")
        return event.is_set()
    finally:
        is_set.cancel()
        closed.cancel()
