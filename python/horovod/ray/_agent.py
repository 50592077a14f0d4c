"""The actor that runs the agent of an elastic job on its node, and passes its streams on."""

from __future__ import annotations

import contextlib
import os
import queue
import secrets
import socket
import subprocess
import threading
from collections.abc import Sequence
from typing import IO

from horovod import _env
from horovod._function_job import _message
from horovod._function_job._caller import find_launcher
from horovod.ray.ray_logger import SOCKET_VARIABLE, is_of_this_user, receive

__all__ = ["NodeAgent", "write_all"]

_PIECE = 1 << 16


def write_all(target: int, data: bytes) -> None:
    """To the descriptor, to the end; what nobody reads is dropped, for who writes must not wait for that."""
    with contextlib.suppress(BrokenPipeError):
        _message.write_all(target, data)


class NodeAgent:
    """The agent's process. Its methods run on threads of the actor, each stream's on one at a time.

    The agent ends when its input does: so it does when this actor is killed.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._streams: dict[str, IO[bytes]] = {}
        # What ranks log, and what tells them that the driver has it; None when the agent has ended.
        self._logged: queue.Queue[tuple[bytes, threading.Event] | None] = queue.Queue()
        self._fetched: list[threading.Event] = []  # of the last batch

    def start(self, arguments: Sequence[str], hears: bool = True) -> None:
        """Starts this node's horovodrun with `arguments`, which make it an agent.

        `hears`: whether somebody calls next_logged(); without, ranks are told that nobody listens.
        """
        if hears:
            self._listen()
        # The login of whoever has started Ray here is not the agent's way to its launcher, which it would watch.
        variables = {name: value for name, value in _env.all_with_prefix("").items() if name != "SSH_CONNECTION"}
        self._process = subprocess.Popen(
            [find_launcher(), *arguments],
            env=variables,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        streams = {"stdin": self._process.stdin, "stdout": self._process.stdout, "stderr": self._process.stderr}
        self._streams = {name: stream for name, stream in streams.items() if stream is not None}

    def write(self, data: bytes) -> None:
        """Gives `data` to the agent's input; nothing once it has ended."""
        write_all(self._streams["stdin"].fileno(), data)

    def close_input(self) -> None:
        """Ends the agent's input."""
        self._streams["stdin"].close()

    def read(self, stream: str) -> bytes:
        """The next bytes of `stream`, stdout or stderr; none at its end."""
        return os.read(self._streams[stream].fileno(), _PIECE)

    def next_logged(self) -> list[bytes]:
        """All that ranks have given to ray_logger.log() by now, pickled, at least one; none when the agent has ended.

        Who calls again has got the last batch: only then do the ranks of it go on. So none ends with a value here,
        which would be lost with this actor.
        """
        for got in self._fetched:
            got.set()
        batch = [self._logged.get()]
        with contextlib.suppress(queue.Empty):
            while batch[-1] is not None:
                batch.append(self._logged.get_nowait())
        if batch[-1] is None and len(batch) > 1:
            self._logged.put(None)  # for the next call
        values = [item for item in batch if item is not None]
        self._fetched = [got for _, got in values]
        return [data for data, _ in values]

    def wait(self) -> int:
        """The exit code of the agent, once it has ended."""
        assert self._process is not None
        code = self._process.wait()
        self._logged.put(None)
        return code if code >= 0 else 128 - code

    def _listen(self) -> None:
        # Without a file, which would stay when this actor is killed.
        name = f"hvd-ray-{secrets.token_hex(16)}"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"\0{name}")
        listener.listen()
        _env.apply({SOCKET_VARIABLE: name})  # ranks inherit it
        threading.Thread(target=self._hear, args=(listener,), daemon=True).start()

    def _hear(self, listener: socket.socket) -> None:
        """Takes what ranks log: on each connection one value after another, of this user alone."""
        while True:
            connection, _ = listener.accept()
            if is_of_this_user(connection):
                threading.Thread(target=self._hear_rank, args=(connection,), daemon=True).start()
            else:
                connection.close()

    def _hear_rank(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream, contextlib.suppress(OSError):
            while (data := receive(stream)) is not None:
                got = threading.Event()
                self._logged.put((data, got))
                got.wait()
                connection.sendall(b"\n")
