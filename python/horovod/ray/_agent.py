"""The actor that runs the agent of an elastic job on its node, and passes its streams on."""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import secrets
import socket
import subprocess
import threading
from collections.abc import Sequence
from typing import IO, Any

from horovod import _env
from horovod._function_job._caller import find_launcher
from horovod.ray.ray_logger import SOCKET_VARIABLE, is_of_this_user

__all__ = ["NodeAgent"]

_PIECE = 1 << 16


class NodeAgent:
    """The agent's process. Its methods run on threads of the actor, each stream's on one at a time.

    The agent ends when its input does: so it does when this actor is killed.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._streams: dict[str, IO[bytes]] = {}
        self._logged: queue.Queue[Any] = queue.Queue()

    def start(self, arguments: Sequence[str]) -> None:
        """Starts this node's horovodrun with `arguments`, which make it an agent."""
        # Without a file, which would stay when this actor is killed.
        name = f"hvd-ray-{secrets.token_hex(16)}"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"\0{name}")
        listener.listen()
        _env.apply({SOCKET_VARIABLE: name})  # ranks inherit it
        self._process = subprocess.Popen(
            [find_launcher(), *arguments],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        streams = {"stdin": self._process.stdin, "stdout": self._process.stdout, "stderr": self._process.stderr}
        self._streams = {name: stream for name, stream in streams.items() if stream is not None}
        threading.Thread(target=self._hear, args=(listener,), daemon=True).start()

    def write(self, data: bytes) -> None:
        """Gives `data` to the agent's input; nothing once it has ended."""
        left = memoryview(data)
        with contextlib.suppress(BrokenPipeError):
            while left:
                left = left[os.write(self._streams["stdin"].fileno(), left) :]

    def close_input(self) -> None:
        """Ends the agent's input."""
        self._streams["stdin"].close()

    def read(self, stream: str) -> bytes:
        """The next bytes of `stream`, stdout or stderr; none at its end."""
        return os.read(self._streams[stream].fileno(), _PIECE)

    def next_logged(self) -> tuple[Any, ...]:
        """What a rank has given to ray_logger.log(), as a tuple of one; empty when the agent has ended."""
        value: tuple[Any, ...] = self._logged.get()
        return value

    def wait(self) -> int:
        """The exit code of the agent, once it has ended."""
        assert self._process is not None
        code = self._process.wait()
        self._logged.put(())
        return code if code >= 0 else 128 - code

    def _hear(self, listener: socket.socket) -> None:
        """Takes what ranks log: on each connection one pickle after another, of this user alone."""
        while True:
            connection, _ = listener.accept()
            if is_of_this_user(connection):
                threading.Thread(target=self._hear_rank, args=(connection,), daemon=True).start()
            else:
                connection.close()

    def _hear_rank(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream, contextlib.suppress(EOFError):
            while True:
                self._logged.put((pickle.load(stream),))
                connection.sendall(b"\n")  # the rank goes on when it has been heard
