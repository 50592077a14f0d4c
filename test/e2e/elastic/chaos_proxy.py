"""A way to a job's rendezvous that delays, cuts or holds up what passes: user space, no rights needed.

Ranks reach it where horovodrun's variables say another port: `ChaosProxy.WRAPPER` is a shell command that changes them.
"""

from __future__ import annotations

import contextlib
import math
import random
import selectors
import socket
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

KINDS = ("latency", "reset", "blackhole")
FLIP = "flip"


@dataclass
class Fault:
    kind: str
    seconds: float
    begin: float = math.inf  # of its time
    struck: list[int] = field(default_factory=list)  # numbers of connections, one for each time

    def is_present(self) -> bool:
        return self.begin <= time.monotonic() < self.begin + self.seconds


class ChaosProxy:
    """Listens on loopback; owned by a test, which says what to do with the connections that there are, and for how long.

    Its one thread carries all of them. What a fault holds back comes later, in order, or its connection is reset: nothing
    is lost from inside a stream.
    """

    WRAPPER = (
        "echo $HOROVOD_GLOO_RENDEZVOUS_PORT >{target}.$$ && mv {target}.$$ {target} &&"
        ' HOROVOD_GLOO_RENDEZVOUS_PORT={port} exec "$0" "$@"'
    )
    CHUNK = 65536

    def __init__(self, target: Path, seed: int) -> None:
        self.target = target  # a file: the port of the rendezvous, once a rank has written it
        self.random = random.Random(seed)
        self.passed = 0  # connections
        self._lock = threading.Lock()
        self._fault = Fault("", 0.0)
        self._selector = selectors.DefaultSelector()
        self._peers: dict[socket.socket, socket.socket] = {}
        self._clients: set[socket.socket] = set()
        self._numbers: dict[socket.socket, int] = {}
        self._marked: dict[int, Fault] = {}  # what is to strike a connection with its first bytes
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listener.getsockname()[1]
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chaos-proxy", daemon=True)
        self._thread.start()

    @property
    def wrapper(self) -> str:
        return self.WRAPPER.format(target=self.target, port=self.port)

    def fault(self, kind: str, seconds: float, from_next: bool = False) -> Fault:
        """For so long, from now on or from the next connection on. Each connection that is made in that time is struck: its
        first bytes come late, or it is cut before or after they have passed. A reset also cuts those that there are. A
        flip strikes one alone: of the last byte that a client says at once."""
        assert kind in (*KINDS, FLIP)
        with self._lock:
            self._fault = Fault(kind, seconds, math.inf if from_next else time.monotonic())
            return self._fault

    def close(self) -> None:
        self._over.set()
        self._thread.join(10)
        assert not self._thread.is_alive(), "the proxy's thread hangs"
        for one in (self._listener, *self._peers):
            one.close()
        self._selector.close()

    def _run(self) -> None:
        while not self._over.is_set():
            with self._lock:
                fault = self._fault
            ready = [key.fileobj for key, _ in self._selector.select(0.05)]
            if self._listener in ready and fault.begin == math.inf:
                fault.begin = time.monotonic()
            if fault.is_present() and fault.kind == "blackhole":
                fault.struck += [self._numbers.get(one, self.passed + 1) for one in ready]  # type: ignore[call-overload]
                self._over.wait(0.05)
                continue
            if fault.is_present() and fault.kind == "reset":
                self._cut_those_that_there_were(fault)
            for one in ready:
                if one is self._listener:
                    self._accept(fault)
                elif one in self._peers:
                    self._carry(one, fault)  # type: ignore[arg-type]

    def _cut_those_that_there_were(self, fault: Fault) -> None:
        for one in list(self._peers):
            if one in self._peers and self._marked.get(number := self._numbers[one]) is not fault:
                fault.struck.append(number)
                self._drop(one)

    def _accept(self, fault: Fault) -> None:
        strikes = fault.is_present()  # what comes next may take its time
        try:
            client, _ = self._listener.accept()
        except OSError:  # it has gone again
            return
        try:
            server = socket.create_connection(("127.0.0.1", int(self.target.read_text())), timeout=10)
        except (OSError, ValueError):
            client.close()
            return
        self.passed += 1
        if strikes:
            self._marked[self.passed] = fault
        self._clients.add(client)
        for one, other in ((client, server), (server, client)):
            one.settimeout(10)
            self._peers[one] = other
            self._numbers[one] = self.passed
            self._selector.register(one, selectors.EVENT_READ)

    def _carry(self, source: socket.socket, fault: Fault) -> None:
        number = self._numbers[source]
        with contextlib.suppress(OSError):
            if data := source.recv(self.CHUNK):
                mark = self._marked.pop(number, fault if fault.is_present() else None)
                if mark is not None and mark.kind == FLIP and (mark.struck or source not in self._clients):
                    mark = None
                if mark is not None:
                    mark.struck.append(number)
                    if mark.kind == "latency":
                        time.sleep(self.random.uniform(0.0, 0.2))
                    if mark.kind == FLIP:
                        data = data[:-1] + bytes([data[-1] ^ 1])
                is_cut = mark is not None and mark.kind == "reset"
                if not is_cut or self.random.random() < 0.5:
                    self._peers[source].sendall(data)
                if is_cut:
                    self._drop(source)
                return
        self._drop(source, gently=True)

    def _drop(self, one: socket.socket, gently: bool = False) -> None:
        for end in (one, self._peers.get(one)):
            if end is None or end not in self._peers:
                continue
            del self._peers[end]
            self._clients.discard(end)
            self._marked.pop(self._numbers.pop(end), None)
            self._selector.unregister(end)
            if not gently:
                with contextlib.suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            end.close()
