"""The compute service in a crowd: strangers hold connections open, and open them again when they are closed."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from horovod.runner.common.service import _wire
from horovod.runner.common.service._admission import MOST_PROVEN, Admission, source_of
from horovod.runner.common.service.compute_service import ComputeClient, ComputeService
from horovod.runner.common.util import secret

KEY = secret.make_secret_key()

CROWD = """
import resource, selectors, socket, sys
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
there = selectors.DefaultSelector()
def come():
    one = socket.socket()
    one.setblocking(False)
    one.connect_ex(("127.0.0.1", int(sys.argv[1])))
    there.register(one, selectors.EVENT_READ)
def is_closed(one):
    try:
        return not one.recv(4096)
    except OSError:
        return True
for _ in range(1000):
    come()
told = False
while True:
    ready = there.select(30)
    if not ready and not told:
        sys.exit("the service has closed nobody")
    for key, _ in ready:
        if is_closed(key.fileobj):
            there.unregister(key.fileobj)
            key.fileobj.close()
            come()
            if not told:
                told = True
                print("the service is full", flush=True)
"""


@pytest.fixture
def crowded() -> Iterator[ComputeService]:
    """A service that a thousand silent connections have filled."""
    service = ComputeService(1, 8, KEY, nics=["lo"])
    crowd = subprocess.Popen([sys.executable, "-S", "-c", CROWD, str(service.get_port())], stdout=subprocess.PIPE)
    try:
        assert crowd.stdout is not None
        assert crowd.stdout.readline() == b"the service is full\n"
        yield service
    finally:
        crowd.kill()
        crowd.communicate()
        service.shutdown()


def test_a_crowd_of_silent_strangers_keeps_no_client_out(crowded: ComputeService) -> None:
    def work(worker: int) -> None:
        client = ComputeClient(crowded.addresses(), KEY)
        client.register_worker_for_dispatcher(0, worker)

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work, worker) for worker in range(8)]:
            done.result(240)  # bounds a hang: who comes waits for the thousand before it, on whatever share of a core


def serve_one(connection: socket.socket) -> None:
    """What the service does with a ping."""
    with connection:
        client_nonce = _wire.open_hello(KEY, connection.recv(_wire.HELLO_LENGTH, socket.MSG_WAITALL))
        connection.sendall(_wire.greeting(b"s" * _wire.NONCE_LENGTH))
        length = _wire.body_length(connection.recv(_wire.LENGTH_LENGTH, socket.MSG_WAITALL))
        request = connection.recv(length + _wire.SEAL_LENGTH, socket.MSG_WAITALL)
        context = _wire.request_context(b"s" * _wire.NONCE_LENGTH, client_nonce)
        connection.sendall(_wire.seal_reply(KEY, _wire.open_sealed(KEY, context, request)[1], {"result": None}))


@pytest.mark.parametrize(("times", "served"), [(4, True), (5, False)])
def test_a_client_that_is_hung_up_on_tries_again_for_a_while(times: int, served: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        listener.settimeout(30)
        asked = pool.submit(ComputeClient, {"lo": [listener.getsockname()]}, KEY)
        for _ in range(times):
            listener.accept()[0].close()
        if served:
            serve_one(listener.accept()[0])
        with contextlib.nullcontext() if served else pytest.raises(ConnectionError, match="no compute service"):
            asked.result(30)


# Who goes: `gone` has those that were hung up on, in order.


def crowd_of(admission: Admission, source: str, names: range) -> None:
    for number in names:
        assert admission.arrive(f"{source} {number}", source)


def test_a_source_pushes_out_its_own_oldest_when_it_has_its_share() -> None:
    gone: list[object] = []
    admission = Admission(0, gone.append)
    crowd_of(admission, "a", range(32))
    crowd_of(admission, "b", range(3))
    crowd_of(admission, "a", range(32, 34))
    assert gone == ["a 0", "a 1"]


def test_a_full_room_pushes_out_the_oldest_of_the_busiest_source() -> None:
    gone: list[object] = []
    admission = Admission(0, gone.append)
    crowd_of(admission, "a", range(31))
    crowd_of(admission, "b", range(32))
    crowd_of(admission, "c", range(3))
    assert gone == ["b 0", "a 0"]  # the second among equals: the one that has waited longest
    admission.leave("b 1")
    crowd_of(admission, "d", range(1))
    assert len(gone) == 2


def test_strangers_push_out_nobody_who_has_the_key() -> None:
    gone: list[object] = []
    admission = Admission(0, gone.append)
    for client in range(40):
        assert admission.arrive(client, "a")
        admission.introduce(client)
    assert gone == list(range(8))  # the introduced have a room, and shares, of their own
    assert not admission.prove(0)
    assert admission.prove(39)
    crowd_of(admission, "a", range(200))
    assert len(gone) == 8 + 200 - 32
    assert all(admission.prove(client) for client in range(8, 39))


def test_the_proven_have_places_of_their_own_and_the_others_room_beside_them() -> None:
    gone: list[object] = []
    admission = Admission(1000, gone.append)
    for client in range(MOST_PROVEN + 1):
        assert admission.arrive(client, "a")
        admission.introduce(client)
        assert admission.prove(client) == (client < MOST_PROVEN)
    crowd_of(admission, "a", range(63))
    assert gone == []
    crowd_of(admission, "b", range(1))
    assert gone == ["a 0"]  # all connections there may be are there
    for number in range(1, 63):
        admission.introduce(f"a {number}")
    admission.introduce("b 0")
    assert not admission.arrive("late", "b")
    admission.leave(0)
    assert admission.arrive("late", "b")


def test_loopback_is_one_source() -> None:
    assert source_of("127.0.0.1") == source_of("127.9.9.9") != source_of("10.0.0.1") != source_of("10.0.0.2")
