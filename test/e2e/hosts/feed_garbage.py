"""Connects to each <address:port> like a stranger: with noise, with what looks like a beginning, with silence.

The silent connections stay open until the end of the input. Prints `fed <address:port>` for each.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys

NOISES = (
    os.urandom(1 << 16),
    b"\0" * (1 << 16),
    b"\xff" * (1 << 20),
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"SSH-2.0-OpenSSH_9.2\r\n",
    b"HVD",
    b"",
)
SILENT = 40


def connect(target: str) -> socket.socket:
    address, port = target.rsplit(":", 1)
    return socket.create_connection((address, int(port)), timeout=10)


def feed(target: str) -> list[socket.socket]:
    for noise in NOISES:
        with connect(target) as stranger, contextlib.suppress(OSError):
            stranger.sendall(noise)
            stranger.shutdown(socket.SHUT_WR)
            while stranger.recv(4096):
                pass
    with connect(target) as stranger:  # ends with a reset
        stranger.send(b"x")
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return [connect(target) for _ in range(SILENT)]


def main() -> None:
    silent = []
    for target in sys.argv[1:]:
        silent += feed(target)
        print("fed", target, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
