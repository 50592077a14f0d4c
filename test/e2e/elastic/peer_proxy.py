"""A way between the ranks of a host that holds up, slows down, cuts and garbles what passes: user space, no rights needed.

Ranks whose connections redirect_connects.c leads here reach each other by it: control and data connections alike.
"""

from __future__ import annotations

import contextlib
import ctypes
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

KINDS = ("hold", "slow", "reset", "truncate", "flip")
LIBC = ctypes.CDLL(None)
HELLO_BEGIN = struct.Struct("<8sHBBII")  # magic, version, kind, TLS, from, to


@dataclass(frozen=True)
class Way:
    """One direction of a connection: `there` is from the rank that has connected, `connector`, to the other."""

    kind: str  # control or data
    connector: int
    acceptor: int
    direction: str


def every(way: Way) -> bool:
    return True


@dataclass
class Fault:
    """`hold` and `slow` last for `seconds`. The others strike once: `reset`, `truncate` (half of what is said passes, and then
    comes an end), `flip` of one bit: in the first byte of what is said, the last (`at` -1), or this one of a stream."""

    kind: str
    seconds: float = 0.0
    matches: Callable[[Way], bool] = every
    at: int | None = None
    begin: float = field(default_factory=time.monotonic)
    struck: list[Way] = field(default_factory=list)

    def is_for(self, way: Way, passed: int, size: int) -> bool:
        is_there = self.at is None or self.at < 0 or passed <= self.at < passed + size
        return is_there and self.matches(way) and not self.is_over()

    def is_over(self) -> bool:
        return time.monotonic() > self.begin + self.seconds if self.kind in ("hold", "slow") else bool(self.struck)


class PeerProxy:
    """Owned by a test. Two threads for each connection carry it."""

    CHUNK = 65536
    DELAY_S, BYTES_PER_S = 0.2, 1e6  # of what is slow

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("cc") or shutil.which("g++")
        if compiler is None:
            pytest.skip("needs a C compiler, for what leads ranks' connections to the proxy")
        library, source = folder / "redirect_connects.so", Path(__file__).parent / "redirect_connects.c"
        flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-x", "c"]
        subprocess.run([compiler, *flags, str(source), "-o", str(library), "-ldl"], check=True)
        self._lock = threading.Lock()
        self._faults: tuple[Fault, ...] = ()
        self._sockets: set[socket.socket] = set()
        self.ways: list[Way] = []
        self.chunks = 0  # that have passed
        self._listener = socket.create_server(("", 0), backlog=64)  # 127.0.0.0/8
        # Shell commands, for ranks: variables, and these and then the rank.
        self.exports = f"export LD_PRELOAD={library} HVD_PEER_PROXY={self._listener.getsockname()[1]}; "
        self.wrapper = self.exports + 'exec "$0" "$@"'
        self._over = threading.Event()
        threading.Thread(target=self._accept, name="peer-proxy", daemon=True).start()

    def strike(self, *faults: Fault) -> None:
        """Instead of those before. Each time the first that may."""
        with self._lock:
            self._faults = faults

    def close(self) -> None:
        self._over.set()
        with self._lock:
            self._listener.close()
            for one in self._sockets:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while not self._over.is_set():
                client, _ = self._listener.accept()
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        address = socket.inet_aton(client.getsockname()[0])
        begin = b""
        try:
            server = socket.create_connection(("127.0.0.1", address[1] << 8 | address[2]), timeout=10)
            client.settimeout(10)
            while len(begin) < HELLO_BEGIN.size and (more := client.recv(HELLO_BEGIN.size - len(begin))):
                begin += more
            _, _, kind, _, connector, acceptor = HELLO_BEGIN.unpack(begin)
        except (OSError, struct.error):  # it has gone again
            client.close()
            return
        for one in (client, server):
            one.settimeout(None)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._sockets |= {client, server}
        there = Way("control" if kind == 1 else "data", connector, acceptor, "there")
        back = Way(there.kind, connector, acceptor, "back")
        self.ways.append(there)
        threads = [
            threading.Thread(target=self._carry, args=(way, *ends), daemon=True)
            for way, ends in ((there, (client, server, begin)), (back, (server, client, b"")))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with self._lock:
            self._sockets -= {client, server}
        client.close()
        server.close()

    def _carry(self, way: Way, source: socket.socket, target: socket.socket, first: bytes) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := first or source.recv(self.CHUNK):
                first = b""
                data, goes_on = self._suffer(way, data, passed, (source, target))
                target.sendall(data)
                passed += len(data)
                if not goes_on:
                    break
        for end, how in ((target, socket.SHUT_WR), (source, socket.SHUT_RD)):
            with contextlib.suppress(OSError):
                end.shutdown(how)

    def _suffer(
        self, way: Way, data: bytes, passed: int, ends: tuple[socket.socket, socket.socket]
    ) -> tuple[bytes, bool]:
        with self._lock:
            self.chunks += 1
            fault = next((one for one in self._faults if one.is_for(way, passed, len(data))), None)
            if fault is None:
                return data, True
            fault.struck.append(way)
        if fault.kind == "hold":
            self._over.wait(max(0.0, fault.begin + fault.seconds - time.monotonic()))
        elif fault.kind == "slow":
            self._over.wait(self.DELAY_S + len(data) / self.BYTES_PER_S)
        elif fault.kind == "flip":
            at = 0 if fault.at is None else len(data) - 1 if fault.at < 0 else fault.at - passed
            data = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        elif fault.kind == "truncate":
            return data[: len(data) // 2], False
        else:
            for end in ends:
                LIBC.connect(end.fileno(), bytes(16), 16)  # to AF_UNSPEC: a reset, though another thread reads
            return b"", False
        return data, True
