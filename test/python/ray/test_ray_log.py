"""What a rank of an elastic job logs: by its node's actor to the driver, which alone reads it."""

from __future__ import annotations

import os
import pickle
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from horovod import _env
from horovod.ray import _agent, _callbacks, ray_logger
from horovod.ray._agent import NodeAgent
from horovod.ray.ray_logger import SOCKET_VARIABLE, _SocketSink

NUMBER = 1000
WAIT_S = 30


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeAgent]:
    """That hears, and runs nothing."""
    monkeypatch.setenv(SOCKET_VARIABLE, "")
    made = NodeAgent()
    made._listen()
    yield made
    made._logged.put(None)


def sink() -> _SocketSink:
    return _SocketSink(_env.get(SOCKET_VARIABLE) or "")


def test_a_rank_goes_on_when_the_driver_has_its_value(agent: NodeAgent) -> None:
    said: list[int] = []
    rank = sink()

    def work() -> None:
        for number in range(NUMBER):
            rank.put(number)
            said.append(number)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    for number in range(NUMBER):
        (data,) = agent.next_logged()
        assert pickle.loads(data) == number
        assert len(said) == number
    agent._logged.put(None)
    assert agent.next_logged() == []
    thread.join(WAIT_S)
    assert len(said) == NUMBER


def test_threads_share_the_connection_of_their_rank(agent: NodeAgent) -> None:
    rank = sink()

    def work(who: int) -> None:
        for _ in range(20):
            rank.put((who, "x" * 300_000))

    threads = [threading.Thread(target=work, args=(who,), daemon=True) for who in range(4)]
    for thread in threads:
        thread.start()
    heard: list[Any] = []
    while len(heard) < 80:
        heard += map(pickle.loads, agent.next_logged())
    agent._logged.put(None)
    agent.next_logged()
    for thread in threads:
        thread.join(WAIT_S)
    assert sorted(who for who, _ in heard) == sorted(list(range(4)) * 20)


def test_another_user_is_neither_told_nor_heard(monkeypatch: pytest.MonkeyPatch, agent: NodeAgent) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(PermissionError, match="another user listens there"):
        sink()
    with socket.socket(socket.AF_UNIX) as stranger:  # who does not look who listens
        stranger.settimeout(WAIT_S)
        stranger.connect(f"\0{_env.get(SOCKET_VARIABLE)}")
        assert stranger.recv(1) == b""


class Unreadable:
    def __reduce__(self) -> Any:
        return int, ("no number",)


def test_only_the_driver_reads_values(agent: NodeAgent) -> None:
    thread = threading.Thread(target=sink().put, args=(Unreadable(),), daemon=True)
    thread.start()
    (data,) = agent.next_logged()
    errors: list[BaseException] = []
    _callbacks._call([print], data, errors)
    assert "a value cannot be read here: ValueError" in str(errors[0])


def test_a_value_that_nobody_took_is_an_error_in_words(monkeypatch: pytest.MonkeyPatch, agent: NodeAgent) -> None:
    monkeypatch.setattr(agent, "_hear_rank", lambda connection: (connection.recv(1 << 16), connection.close()))
    with pytest.raises(ConnectionError, match="the value is lost"):
        sink().put(1)


def test_all_that_waits_is_one_batch(agent: NodeAgent) -> None:
    for value in (b"a", b"b", None):
        agent._logged.put((value, threading.Event()) if value is not None else None)
    assert agent.next_logged() == [b"a", b"b"]
    assert agent.next_logged() == []


def test_without_callbacks_a_rank_is_told_that_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SOCKET_VARIABLE, raising=False)
    monkeypatch.delenv("HOROVOD_RANK", raising=False)
    monkeypatch.setattr(_agent, "find_launcher", lambda: "/bin/true")
    agent = NodeAgent()
    agent.start([], hears=False)
    assert agent.wait() == 0
    ray_logger.configure(None)
    with pytest.warns(UserWarning, match="nobody listens here"):
        ray_logger.log({"loss": 1})
