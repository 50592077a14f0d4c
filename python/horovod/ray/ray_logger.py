"""Values that ranks report while they train, to the callbacks of the executor."""

from __future__ import annotations

import os
import pickle
import socket
import struct
import threading
import warnings
from typing import IO, Any, Protocol

import cloudpickle

from horovod import _env

__all__ = ["configure", "log"]

# Where a rank of an elastic job, which is no worker of Ray, finds the actor that its agent runs in.
SOCKET_VARIABLE = "HVD_RAY_LOG"


_LENGTH = struct.Struct("!Q")  # before each value
_PEER = struct.Struct("3i")  # process, user, group: struct ucred


def is_of_this_user(connection: socket.socket) -> bool:
    """Whether the process at the other end of `connection`, a socket of this host, is of the same user as this one."""
    peer = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return bool(peer[1] == os.geteuid())


def receive(stream: IO[bytes]) -> bytes | None:
    """The next value of a rank's connection, pickled; None when it has ended."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    data = stream.read(length)
    return data if len(data) == length else None


class Sink(Protocol):
    """Takes what is logged: a queue of Ray, for one."""

    def put(self, item: Any) -> None: ...


class PickledSink(Sink, Protocol):
    """Takes also what is pickled already, so that nobody between a rank and the driver has to be able to read it."""

    def put_pickled(self, data: bytes) -> None: ...


class _SocketSink:
    """Gives what is logged to the actor on this node, and waits until the driver has it. Thread-safe."""

    def __init__(self, name: str) -> None:
        self._lock = threading.Lock()  # a value and its answer belong together on the connection
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(f"\0{name}")
        if not is_of_this_user(self._connection):
            raise PermissionError(f"{SOCKET_VARIABLE}={name}: another user listens there")

    def put(self, item: Any) -> None:
        data = cloudpickle.dumps(item, protocol=pickle.HIGHEST_PROTOCOL)
        with self._lock:
            self._connection.sendall(_LENGTH.pack(len(data)) + data)
            answer = self._connection.recv(1)
        if not answer:
            raise ConnectionError("horovod.ray.ray_logger.log(): the actor of this node has ended, the value is lost")


class _Logger:
    """Where log() puts what it is given; log() is a function of the module, so there is one in a process."""

    def __init__(self) -> None:
        self._sink: Sink | None = None
        self._has_warned = False

    def configure(self, queue: Sink | None) -> None:
        self._sink = queue
        self._has_warned = False

    def log(self, info_dict: dict[str, Any], chief_only: bool) -> None:
        if chief_only and _env.get("HOROVOD_RANK") not in (None, "0"):
            return
        if self._sink is None and (path := _env.get(SOCKET_VARIABLE)):
            self._sink = _SocketSink(path)
        if self._sink is not None:
            self._sink.put(info_dict)
        elif not self._has_warned:
            self._has_warned = True
            warnings.warn(
                "horovod.ray.ray_logger.log(): nobody listens here. Give run() or execute() callbacks, which hear of "
                "what ranks log",
                stacklevel=3,
            )


_logger = _Logger()


def configure(queue: Sink | None) -> None:
    """What log() is given goes to `queue`, an object with put(); None: to nobody."""
    _logger.configure(queue)


def log(info_dict: dict[str, Any], chief_only: bool = True) -> None:
    """Gives `info_dict` to the callbacks of run() or execute(), in the process that called it.

    Rank 0 alone does, unless `chief_only` is False. Where nobody listens it warns, once.
    """
    _logger.log(info_dict, chief_only)
