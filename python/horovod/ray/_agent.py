"""The actor that runs the agent of an elastic job on its node, and passes its streams on."""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from horovod import _env
from horovod._function_job._caller import find_launcher
from horovod.ray.ray_logger import SOCKET_VARIABLE

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
        folder = tempfile.mkdtemp(prefix="hvd-")
        path = str(Path(folder) / "log")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()
        _env.apply({SOCKET_VARIABLE: path})  # ranks inherit it
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
        threading.Thread(target=self._hear, args=(listener, folder), daemon=True).start()

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

    def _hear(self, listener: socket.socket, folder: str) -> None:
        """Takes what ranks log: on each connection one pickle after another."""
        try:
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=self._hear_rank, args=(connection,), daemon=True).start()
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _hear_rank(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream, contextlib.suppress(EOFError):
            while True:
                self._logged.put((pickle.load(stream),))
                connection.sendall(b"\n")  # the rank goes on when it has been heard
