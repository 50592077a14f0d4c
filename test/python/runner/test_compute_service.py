"""The compute service: registration, waiting, errors that travel, and strangers."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from horovod.runner.common.service import _admission, _wire
from horovod.runner.common.service.compute_service import ComputeClient, ComputeService, TimeoutException
from horovod.runner.common.util import secret
from horovod.runner.common.util.interfaces import ipv4_addresses
from jobs import assert_soon

KEY = secret.make_secret_key()
NONCE = b"n" * _wire.NONCE_LENGTH  # of a client that is written out here
HELLO = _wire.hello(KEY, NONCE)


@pytest.fixture
def service() -> Iterator[ComputeService]:
    made = ComputeService(2, 3, KEY, nics=["lo"])
    with ended(made):
        yield made


@pytest.fixture
def client(service: ComputeService) -> ComputeClient:
    return ComputeClient(service.addresses(), KEY)


@contextlib.contextmanager
def ended(service: ComputeService) -> Iterator[None]:
    """Ends the service in any case, and so all waits of its clients: threads in them would outlive a failed test."""
    try:
        yield
    finally:
        service.shutdown()


def later(function: Callable[..., Any], *args: Any) -> Any:
    return ThreadPoolExecutor(1).submit(function, *args)


def test_a_dispatcher_is_found_by_those_who_came_before_and_after(client: ComputeClient) -> None:
    waiting = later(client.wait_for_dispatcher_registration, 1, 20)
    client.register_dispatcher(0, "grpc://host:1")
    assert not waiting.done()
    client.register_dispatcher(1, "grpc://host:2")
    assert waiting.result(20) == "grpc://host:2"
    assert client.wait_for_dispatcher_registration(0, 0) == "grpc://host:1"


def test_the_first_client_is_waited_for_and_strangers_are_none(service: ComputeService) -> None:
    waiting = later(service.wait_for_first_client)
    with pytest.raises(ConnectionError):
        ComputeClient(service.addresses(), secret.make_secret_key())
    assert not waiting.done()
    ComputeClient(service.addresses(), KEY)
    assert waiting.result(20)
    assert service.wait_for_first_client()


def test_nobody_waits_for_the_first_client_of_a_service_that_is_over(service: ComputeService) -> None:
    waiting = later(service.wait_for_first_client)
    service.shutdown()
    assert not waiting.result(20)


def test_workers_are_counted_once_and_for_each_dispatcher(client: ComputeClient) -> None:
    for worker in (1, 2, 2, 1):
        client.register_worker_for_dispatcher(0, worker)
    for worker in (3, 4, 5):
        client.register_worker_for_dispatcher(1, worker)
    client.wait_for_dispatcher_worker_registration(1, 0)
    with pytest.raises(TimeoutException, match=r"3 workers of dispatcher 0 to register, 2 have.*0\.2 seconds"):
        client.wait_for_dispatcher_worker_registration(0, 0.2)
    waiting = later(client.wait_for_dispatcher_worker_registration, 0, 20)
    client.register_worker_for_dispatcher(0, 3)
    waiting.result(20)


def test_errors_arrive_as_what_they_are(client: ComputeClient) -> None:
    for wrong in (-1, 2):
        for call in (
            lambda wrong=wrong: client.register_dispatcher(wrong, "a"),
            lambda wrong=wrong: client.wait_for_dispatcher_registration(wrong, 1),
            lambda wrong=wrong: client.register_worker_for_dispatcher(wrong, 0),
            lambda wrong=wrong: client.wait_for_dispatcher_worker_registration(wrong, 1),
        ):
            with pytest.raises(IndexError, match=f"{wrong}.*0 to 1"):
                call()
    client.register_dispatcher(0, "a:1")
    client.register_dispatcher(0, "a:1")
    with pytest.raises(ValueError, match=r"a:1.*b:2"):
        client.register_dispatcher(0, "b:2")
    with pytest.raises(ValueError, match="whole number"):
        client.register_worker_for_dispatcher(0, "one")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="address"):
        client.register_dispatcher(1, "a" * 513)
    with pytest.raises(ValueError, match="too long"):
        client.register_dispatcher(1, "a" * 100_000)
    with pytest.raises(TimeoutException, match="dispatcher 1"):
        client.wait_for_dispatcher_registration(1, 0.1)


def test_a_shutdown_request_reaches_all_who_wait(service: ComputeService, client: ComputeClient) -> None:
    pool = ThreadPoolExecutor(8)
    waiting = [pool.submit(client.wait_for_shutdown) for _ in range(8)]
    assert not service.wait_for_clients(1, 0.2)
    client.shutdown()
    for one in waiting:
        one.result(20)
    assert service.wait_for_clients(8, 60)
    client.wait_for_shutdown()


def test_the_end_of_the_service_releases_all_who_wait(service: ComputeService, client: ComputeClient) -> None:
    served = later(client.wait_for_shutdown)
    lost = later(client.wait_for_dispatcher_registration, 0, 1000)
    end = time.monotonic() + 60
    while len(service._waiting) < 1 or len(service._handlers) < 2:  # until the service has both
        assert time.monotonic() < end
        time.sleep(0.01)
    service.shutdown()
    service.shutdown()
    served.result(60)
    with pytest.raises(ConnectionError, match="wait_for_dispatcher failed"):
        lost.result(60)
    assert not any(thread.name == "hvd-compute-service" for thread in threading.enumerate())
    with pytest.raises(ConnectionError, match="no compute service"):
        ComputeClient(service.addresses(), KEY)


def test_threads_that_end_a_service_together_all_do() -> None:
    together = threading.Barrier(3)

    def end(service: ComputeService) -> bool:
        together.wait(20)
        service.shutdown()
        return service._thread.is_alive()

    with ThreadPoolExecutor(3) as pool:
        for _ in range(20):  # without order among them, every third time one raised
            service = ComputeService(1, 1, KEY, nics=["lo"])
            assert list(pool.map(end, [service] * 3)) == [False] * 3


def test_hundreds_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ends of each connection are in this process, which often may open no more than 1024 files.

    Its 320 threads and the service share one interpreter: on a busy machine a request may take long.
    """
    monkeypatch.setattr(_wire, "REQUEST_DEADLINE_S", 60.0)
    monkeypatch.setattr(_admission, "INTRODUCTION_DEADLINE_S", 60.0)
    service = ComputeService(2, 256, KEY, nics=["lo"])
    with ThreadPoolExecutor(256) as waiters, ThreadPoolExecutor(64) as workers, ended(service):
        client = ComputeClient(service.addresses(), KEY)
        waiting = [waiters.submit(client.wait_for_shutdown) for _ in range(256)]
        for done in [workers.submit(client.register_worker_for_dispatcher, i % 2, i) for i in range(512)]:
            done.result(120)
        for number in (0, 1):
            client.wait_for_dispatcher_worker_registration(number, 0)
        client.shutdown()
        for one in waiting:
            one.result(120)


def test_a_busy_service_has_room_for_a_burst(service: ComputeService, client: ComputeClient) -> None:
    free = threading.Event()
    service._loop.call_soon_threadsafe(free.wait, 60)
    with contextlib.ExitStack() as connections:
        try:
            for _ in range(300):  # without room, the system drops the request and tries again after a second
                connections.enter_context(socket.create_connection(client._address, timeout=30))
        finally:
            free.set()


def test_a_client_sends_before_it_is_greeted() -> None:
    """So that a connection which only the client holds for made does not wait until the deadline."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        asked = later(ComputeClient, {"lo": [listener.getsockname()]}, KEY)
        connection, _ = listener.accept()
    with connection:
        connection.settimeout(30)
        assert len(connection.recv(_wire.HELLO_LENGTH, socket.MSG_WAITALL)) == _wire.HELLO_LENGTH
    with pytest.raises(ConnectionError, match="no compute service"):
        asked.result(30)


@pytest.mark.parametrize("counts", [(0, 1), (1, 0), (-1, 1)])
def test_counts_are_checked(counts: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        ComputeService(*counts, KEY)


def test_keys_and_interfaces_are_checked() -> None:
    with pytest.raises(ValueError, match="key"):
        ComputeService(1, 1, b"")
    with pytest.raises(ValueError, match="nosuch0"):
        ComputeService(1, 1, KEY, nics=["nosuch0"])
    with pytest.raises(ValueError, match="addresses"):
        ComputeClient({}, KEY)


def listening() -> set[str]:
    """Local addresses of this process' listening IPv4 sockets, as in /proc."""
    import os

    inodes = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            inodes.add(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:
            continue
    rows = [line.split() for line in open("/proc/net/tcp").readlines()[1:]]
    found = {row[1].split(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in inodes}
    return {socket.inet_ntoa(bytes.fromhex(one)[::-1]) for one in found}


def test_it_listens_where_it_was_told_to(service: ComputeService) -> None:
    assert set(service.addresses()) == {"lo"}
    assert listening() == {"127.0.0.1"}
    everywhere = ComputeService(1, 1, KEY)
    with ended(everywhere):
        assert listening() == set(ipv4_addresses().values())
        assert "0.0.0.0" not in listening()


# Strangers


def connect(service: ComputeService) -> tuple[socket.socket, bytes]:
    connection = socket.create_connection(service.addresses()["lo"][0], timeout=20)
    connection.sendall(HELLO)
    greeting = b""
    while len(greeting) < _wire.GREETING_LENGTH:
        part = connection.recv(_wire.GREETING_LENGTH - len(greeting))
        assert part, "the service has hung up"
        greeting += part
    return connection, _wire.nonce_of(greeting)


def sealed(server_nonce: bytes, message: dict[str, Any]) -> tuple[bytes, bytes]:
    """What a client sends when it was greeted, and the digest that the reply refers to."""
    return _wire.seal_request(KEY, server_nonce, NONCE, message)


def answer(connection: socket.socket) -> bytes:
    """All that comes until the service hangs up."""
    received = b""
    with connection:
        while True:
            try:
                part = connection.recv(4096)
            except ConnectionResetError:
                return received
            if not part:
                return received
            received += part


def test_another_key_is_not_answered(service: ComputeService, client: ComputeClient) -> None:
    with pytest.raises(ConnectionError, match="key"):
        ComputeClient(service.addresses(), secret.make_secret_key())
    client.register_dispatcher(0, "still:1")


def test_a_recorded_request_is_worth_nothing(service: ComputeService) -> None:
    message = {"request": "register_dispatcher", "dispatcher_id": 0, "address": "evil:1"}
    connection, nonce = connect(service)
    recorded, _ = sealed(nonce, {**message, "address": "good:1"})
    connection.sendall(recorded)
    assert answer(connection) != b""
    again, _ = connect(service)
    again.sendall(recorded)
    assert answer(again) == b""


@pytest.mark.parametrize(
    "garbage",
    [
        (2).to_bytes(4, "big") + b"{}" + b"d" * 32,
        b"",
    ],
)
def test_garbage_is_dropped(service: ComputeService, client: ComputeClient, garbage: bytes) -> None:
    connection, _ = connect(service)
    connection.sendall(garbage)
    connection.shutdown(socket.SHUT_WR)
    assert answer(connection) == b""
    client.register_dispatcher(0, "still:1")


@pytest.mark.parametrize("length", [_wire.LONGEST_MESSAGE + 1, 2**32 - 1])
def test_a_message_that_is_too_long_is_not_waited_for(service: ComputeService, length: int) -> None:
    def seconds() -> float:
        connection, _ = connect(service)
        start = time.monotonic()
        connection.sendall(length.to_bytes(4, "big"))
        assert answer(connection) == b""
        return time.monotonic() - start

    assert_soon(seconds, 3.0)  # of REQUEST_DEADLINE_S


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\n\r\n" * 10, NONCE + b"d" * 32, HELLO[:-1], b""],
    ids=["HTTP", "wrong proof", "cut off", "nothing"],
)
def test_who_does_not_know_the_key_is_not_even_greeted(
    service: ComputeService, client: ComputeClient, garbage: bytes
) -> None:
    connection = socket.create_connection(service.addresses()["lo"][0], timeout=20)
    connection.sendall(garbage)
    connection.shutdown(socket.SHUT_WR)
    assert answer(connection) == b""
    client.register_dispatcher(0, "still:1")


@pytest.mark.parametrize("known", [False, True])
def test_silence_has_a_deadline(service: ComputeService, monkeypatch: pytest.MonkeyPatch, known: bool) -> None:
    if known:
        monkeypatch.setattr(_wire, "REQUEST_DEADLINE_S", 0.3)

    def seconds() -> float:
        connection = connect(service)[0] if known else socket.create_connection(service.addresses()["lo"][0], 20)
        start = time.monotonic()
        assert answer(connection) == b""
        return time.monotonic() - start

    assert_soon(seconds, 3.0)


def test_json_that_is_no_request_is_an_error_not_a_crash(service: ComputeService) -> None:
    for message, text in (({"request": "nonsense"}, "unknown request"), ({"request": "wait_for_shutdown"}, "timeout")):
        connection, nonce = connect(service)
        request, digest = sealed(nonce, message)
        connection.sendall(request)
        reply, _ = _wire.open_sealed(KEY, _wire.reply_context(digest), answer(connection)[_wire.LENGTH_LENGTH :])
        assert reply["error"] == "ValueError"
        assert text in reply["message"]


def test_a_false_service_is_found_out() -> None:
    """It knows no key, so what it replies is not believed."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        connection.recv(_wire.HELLO_LENGTH, socket.MSG_WAITALL)
        connection.sendall(_wire.greeting(b"s" * 32))
        connection.recv(4096)
        connection.sendall(_wire.seal_reply(b"guess", b"d" * 32, {"result": None}))

    server = later(serve)
    with listener, pytest.raises(ConnectionError, match="another key"):
        ComputeClient({"lo": [listener.getsockname()[:2]]}, KEY)
    server.result(60)


def test_a_reply_to_another_request_is_not_believed() -> None:
    """Recorded with the same server nonce: the client's own nonce makes it worthless."""
    first, second = (_wire.seal_request(KEY, b"s" * 32, nonce * 32, {"request": "ping"})[1] for nonce in (b"a", b"b"))
    reply = _wire.seal_reply(KEY, first, {"result": None})[_wire.LENGTH_LENGTH :]
    assert _wire.open_sealed(KEY, _wire.reply_context(first), reply)[0] == {"result": None}
    with pytest.raises(_wire.BadMessage):
        _wire.open_sealed(KEY, _wire.reply_context(second), reply)


def test_what_runs_late_has_ended_before_its_loop_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = threading.Event()
    cancelled = []

    async def converse(_self: ComputeService, _reader: Any, _writer: Any) -> None:
        begun.set()
        for when in ("when it is late", "at the end"):  # still busy after the first time, as one that closes late is
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(when)

    monkeypatch.setattr(ComputeService, "_converse", converse)
    monkeypatch.setattr(_wire, "REQUEST_DEADLINE_S", 0.1)
    service = ComputeService(1, 1, KEY, nics=["lo"])
    with ended(service), socket.create_connection(service.addresses()["lo"][0], timeout=20):
        assert begun.wait(20)
    assert cancelled == ["when it is late", "at the end"]
