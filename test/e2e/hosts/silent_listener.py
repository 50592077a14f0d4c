"""Accepts connections to <address> <port> and says nothing, as a broken sshd does."""

from __future__ import annotations

import socket
import sys

with socket.create_server((sys.argv[1], int(sys.argv[2]))) as server:
    accepted = []
    while True:
        accepted.append(server.accept()[0])
