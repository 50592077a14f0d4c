"""Starts the agents of an elastic job in actors: the other end of _rsh.py, in the process that runs horovodrun."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from horovod.ray._agent import NodeAgent, write_all
from horovod.ray.ray_logger import PickledSink, is_of_this_user

__all__ = ["AgentRelay", "AgentPlace"]

_PIECE = 1 << 16
_LARGEST_REQUEST = 1 << 16
_FAILED = 1
_LOST = 255
_CALLS = 8  # of an agent at one time: three streams, what is logged, its end


@dataclass(frozen=True)
class AgentPlace:
    """Where an agent is to run, and what it takes there for its ranks."""

    node_id: str
    resources: Mapping[str, float]


class AgentRelay:
    """Listens at a socket for _rsh.py, on threads of its own, from `with` on until its end.

    `name` is the socket's, an abstract one: a path could be too long for it. Other users may connect, and are refused.

    Args:
        place_of: Says where the agent of a host of the job is to run; KeyError if the host is not known.
        seconds: How long a node may take to have room for an agent and to start it.
        queue: Gets what ranks log, if there is one.
    """

    def __init__(self, place_of: Callable[[str], AgentPlace], seconds: float, queue: PickledSink | None = None) -> None:
        self.name = f"hvd-ray-{secrets.token_hex(16)}"
        self._place_of = place_of
        self._seconds = seconds
        self._queue = queue
        self._listener = socket.socket(socket.AF_UNIX)
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()  # guarded by _lock
        self._threads: list[threading.Thread] = []  # of the accepting thread, and after its end of who ends it
        self._accepting = threading.Thread(target=self._accept, name="hvd-agents")

    def __enter__(self) -> AgentRelay:
        self._listener.bind(f"\0{self.name}")
        self._listener.listen()
        try:
            self._accepting.start()
        except BaseException:  # Ctrl-C, for one, when the thread has begun
            self._listener.shutdown(socket.SHUT_RDWR)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._accepting.join()
        self._listener.close()
        with self._lock:
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            if not is_of_this_user(connection):
                connection.close()
                continue
            with self._lock:
                self._connections.add(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), name="hvd-agent")
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        fds: list[int] = []
        code = _FAILED
        try:
            text, fds, _, _ = socket.recv_fds(connection, _LARGEST_REQUEST, 3, socket.MSG_CMSG_CLOEXEC)
            request = json.loads(text)
            code = self._run_agent(connection, request["node"], request["command"], fds)
        except (KeyError, ValueError, RayError) as error:
            if len(fds) == 3:
                write_all(fds[2], f"horovod.ray: no agent: {error}\n".encode())
        finally:
            for fd in fds:
                os.close(fd)
            with contextlib.suppress(OSError):
                connection.sendall(f"{code}\n".encode())
            with self._lock:
                self._connections.discard(connection)
            connection.close()

    def _run_agent(self, connection: socket.socket, host: str, command: list[str], fds: list[int]) -> int:
        """The exit code of an agent that runs in an actor."""
        place = self._place_of(host)
        actor: Any = (
            ray.remote(NodeAgent)
            .options(
                num_cpus=place.resources["CPU"],
                num_gpus=place.resources.get("GPU", 0),
                max_concurrency=_CALLS,
                scheduling_strategy=NodeAffinitySchedulingStrategy(place.node_id, soft=False),
            )
            .remote()
        )
        ended = threading.Event()
        watching = threading.Thread(target=_watch, args=(connection, actor, ended), name="hvd-agent-caller")
        watching.start()
        try:
            hears = self._queue is not None
            started = actor.start.remote(command[1:], hears)  # the first word is our horovodrun, not that node's
            if not ray.wait([started], timeout=self._seconds)[0]:
                wanted = ", ".join(f"{name}: {amount:g}" for name, amount in place.resources.items())
                said = f"horovod.ray: no room within {self._seconds:g} s for {wanted} on node {place.node_id}\n"
                write_all(fds[2], said.encode())
                return _FAILED
            ray.get(started)
            return self._follow(actor, fds)
        finally:
            ended.set()
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RD)  # wakes _watch()
            watching.join()
            ray.kill(actor)

    def _follow(self, actor: Any, fds: list[int]) -> int:
        """Passes the agent's streams on until it has ended; its exit code."""
        end, ours = socket.socketpair()
        feeding = threading.Thread(target=_feed, args=(actor, fds[0], end), name="hvd-agent-stdin")
        reading = [
            threading.Thread(target=_copy, args=(actor, "stdout", fds[1]), name="hvd-agent-stdout"),
            threading.Thread(target=_copy, args=(actor, "stderr", fds[2]), name="hvd-agent-stderr"),
        ]
        if self._queue is not None:
            reading.append(threading.Thread(target=_pass_on, args=(actor, self._queue), name="hvd-agent-log"))
        for thread in (feeding, *reading):
            thread.start()
        try:
            code = int(ray.get(actor.wait.remote()))
        except RayError:
            code = _LOST  # the node is lost, or horovodrun has given it up
        for thread in reading:
            thread.join()
        ours.close()  # wakes _feed()
        feeding.join()
        end.close()
        return code


def _watch(connection: socket.socket, actor: Any, ended: threading.Event) -> None:
    """Ends the agent when who has called for it is there no more: horovodrun has given it up, or ended."""
    with contextlib.suppress(OSError):
        connection.recv(1)
    if not ended.is_set():
        ray.kill(actor)


def _feed(actor: Any, source: int, end: socket.socket) -> None:
    """From horovodrun to the agent, until one of them has ended."""
    inputs: list[Any] = [source, end]
    with contextlib.suppress(RayError):
        while True:
            ready, _, _ = select.select(inputs, [], [])
            if end in ready:
                return
            data = os.read(source, _PIECE)
            if not data:
                ray.get(actor.close_input.remote())
                return
            ray.get(actor.write.remote(data))


def _copy(actor: Any, stream: str, target: int) -> None:
    with contextlib.suppress(RayError):
        while data := ray.get(actor.read.remote(stream)):
            write_all(target, data)


def _pass_on(actor: Any, queue: PickledSink) -> None:
    with contextlib.suppress(RayError):
        while batch := ray.get(actor.next_logged.remote()):
            for data in batch:
                with contextlib.suppress(RayError):  # who reads the queue hears of that; ranks wait to be fetched from
                    queue.put_pickled(data)
