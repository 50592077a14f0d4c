"""The client of a compute service."""

from __future__ import annotations

import contextlib
import logging
import random
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from horovod.runner.common.service import _wire
from horovod.runner.common.util.interfaces import is_loopback
from horovod.runner.common.util.timeout import TimeoutException

_log = logging.getLogger("horovod")

_ERRORS: dict[str, type[Exception]] = {
    "IndexError": IndexError,
    "ValueError": ValueError,
    "TimeoutException": TimeoutException,
}
_ONE_WAIT_S = 3600.0  # a wait without a deadline is requested again after that
# The service hangs up when strangers crowd it, so a client tries again after each of these, at most 0.75 s in all. It
# may have another key than the service as well: that looks the same, and should not take long to be told.
_PAUSES_S = (0.05, 0.1, 0.2, 0.4)
_HUNG_UP = (ConnectionResetError, BrokenPipeError, EOFError)

Address = tuple[str, int]


class ComputeClient:
    """A client of the ComputeService at the first of `addresses` (interface -> [(IPv4 address, port)]) that answers.

    `key`: the bytes that the service was given. `verbose`: 2 logs the address that is used.

    Every method may be called again and by several threads, and raises ConnectionError if the service cannot be
    reached, or IndexError for a `dispatcher_id` that does not exist. Seconds are floats.
    """

    def __init__(self, addresses: Mapping[str, Sequence[Sequence[Any]]], key: bytes, verbose: int = 1) -> None:
        if not isinstance(key, bytes) or not key:
            raise ValueError("ComputeClient: the key must be bytes, those that the service was given")
        self._key = key
        candidates = [(str(host), int(port)) for pairs in addresses.values() for host, port in pairs]
        if not candidates:
            raise ValueError("ComputeClient: no addresses were given")
        self._address, self._local_host = self._probe(sorted(candidates, key=lambda one: is_loopback(one[0])))
        if verbose >= 2:
            _log.info("compute service at %s:%d", *self._address)

    @property
    def local_host(self) -> str:
        """The address of this host on the route to the service, a string. Other hosts can use it too."""
        return self._local_host

    def register_dispatcher(self, dispatcher_id: int, dispatcher_address: str) -> None:
        """Registers the address of dispatcher `dispatcher_id`, a string `dispatcher_address`.

        Does nothing if it has this address already. ValueError if it has another one.
        """
        self._ask("register_dispatcher", dispatcher_id=dispatcher_id, address=dispatcher_address)

    def wait_for_dispatcher_registration(self, dispatcher_id: int, timeout: float) -> str:
        """Waits for a dispatcher `dispatcher_id` and returns its address; TimeoutException after `timeout` seconds."""
        return str(self._ask("wait_for_dispatcher", timeout, dispatcher_id=dispatcher_id))

    def register_worker_for_dispatcher(self, dispatcher_id: int, worker_id: int) -> None:
        """Registers worker `worker_id` of dispatcher `dispatcher_id`; a second time has no effect."""
        self._ask("register_worker", dispatcher_id=dispatcher_id, worker_id=worker_id)

    def wait_for_dispatcher_worker_registration(self, dispatcher_id: int, timeout: float) -> None:
        """Waits for all workers of dispatcher `dispatcher_id`; TimeoutException after `timeout` seconds."""
        self._ask("wait_for_workers", timeout, dispatcher_id=dispatcher_id)

    def shutdown(self) -> None:
        """Requests the end of the compute job: wait_for_shutdown() returns for all clients."""
        self._ask("shutdown")

    def wait_for_shutdown(self) -> None:
        """Waits, without a deadline, until a client has called shutdown()."""
        while True:
            try:
                self._ask("wait_for_shutdown", _ONE_WAIT_S)
                return
            except TimeoutException:
                continue

    def _probe(self, candidates: Sequence[Address]) -> tuple[Address, str]:
        """The first of the addresses at which the service answers, and this host's address on the route to it."""

        def ping(address: Address) -> str | Exception:
            try:
                return self._insist(address, {"request": "ping"})[1]
            except (OSError, EOFError, _wire.BadMessage) as error:
                return error

        with ThreadPoolExecutor(max_workers=min(len(candidates), 32)) as pool:
            found = list(zip(candidates, pool.map(ping, candidates), strict=True))
        for address, local_host in found:
            if isinstance(local_host, str):
                return address, local_host
        tried = "; ".join(f"{host}:{port}: {error}" for (host, port), error in found)
        raise ConnectionError(f"no compute service with this key answers. Tried {tried}")

    def _ask(self, request: str, timeout: float | None = None, **arguments: Any) -> Any:
        message = {"request": request, **arguments}
        if timeout is not None:
            message["timeout"] = timeout
        try:
            reply, _ = self._insist(self._address, message)
        except (OSError, EOFError, _wire.BadMessage) as error:
            host, port = self._address
            what = f"{request} failed: {error or type(error).__name__}"
            raise ConnectionError(f"compute service at {host}:{port}: {what}") from error
        if "error" in reply:
            raise _ERRORS.get(str(reply["error"]), RuntimeError)(str(reply.get("message")))
        return reply.get("result")

    def _insist(self, address: Address, message: dict[str, Any]) -> tuple[dict[str, Any], str]:
        """_converse(), again after a pause when the service hung up. What the request waits for gets no more time."""
        end = time.monotonic() + message.get("timeout", 0.0)
        for pause in _PAUSES_S:
            with contextlib.suppress(*_HUNG_UP):
                return self._converse(address, message)
            time.sleep(random.uniform(pause / 2, pause))  # clients that were pushed out together come back apart
            if "timeout" in message:
                message["timeout"] = max(0.0, end - time.monotonic())
        return self._converse(address, message)

    def _converse(self, address: Address, message: dict[str, Any]) -> tuple[dict[str, Any], str]:
        """Sends one request; returns its reply and this host's address. Errors: OSError, EOFError, BadMessage."""
        with socket.create_connection(address, timeout=_wire.REQUEST_DEADLINE_S) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            client_nonce = secrets.token_bytes(_wire.NONCE_LENGTH)
            end = time.monotonic() + _wire.GREETING_DEADLINE_S
            connection.sendall(_wire.hello(self._key, client_nonce))
            server_nonce = _wire.nonce_of(_receive(connection, _wire.GREETING_LENGTH, end))
            sealed, digest = _wire.seal_request(self._key, server_nonce, client_nonce, message)
            connection.sendall(sealed)
            end = time.monotonic() + max(0.0, message.get("timeout", 0.0)) + 2 * _wire.REQUEST_DEADLINE_S
            length = _wire.body_length(_receive(connection, _wire.LENGTH_LENGTH, end))
            body = _receive(connection, length + _wire.SEAL_LENGTH, end)
            reply, _ = _wire.open_sealed(self._key, _wire.reply_context(digest), body)
            return reply, str(connection.getsockname()[0])


def _receive(connection: socket.socket, count: int, end: float) -> bytes:
    """Exactly `count` bytes. EOFError if the service closes the connection, TimeoutError at `end`."""
    received = bytearray()
    while len(received) < count:
        remaining = end - time.monotonic()
        if remaining <= 0:
            raise TimeoutError(f"only {len(received)} of {count} bytes came in time")
        connection.settimeout(remaining)
        part = connection.recv(count - len(received))
        if not part:
            raise EOFError("it closed the connection; does it have another key?")
        received += part
    return bytes(received)
