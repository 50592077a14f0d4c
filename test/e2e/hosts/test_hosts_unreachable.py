"""A host that can't be used: one clear message that names host and cause, a non-zero exit, and nothing left anywhere.

The launcher runs on c; host a is always fine, and must not have run anything. Why ssh may fail, test_launcher_ssh.py has
with a real sshd on loopback.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts_job import StartOn, assert_nothing_left
from launcher_job import RunningJob
from netns import PATIENCE_S, Host, Network, make_key, wait_until

from jobs import assert_soon


def launch(network: Network, start_on: StartOn, *flags: str, hosts: str = "a:1,b:1") -> RunningJob:
    return start_on(network.hosts["c"], "-np", "2", "-H", hosts, *flags, "sh", "-c", "echo a rank has run")


def assert_refused(network: Network, job: RunningJob, message: str) -> None:
    """One line of ours, which matches `message` as a whole."""
    assert job.wait(PATIENCE_S) == 1, job
    lines = [line for line in job.err.splitlines() if line.startswith("horovodrun: ")]
    assert len(lines) == 1, job
    assert re.fullmatch("horovodrun: " + message, lines[0]), job
    assert "a rank has run" not in job.out
    assert_nothing_left(network, job)


def test_an_unknown_host(network: Network, start_on: StartOn) -> None:
    job = launch(network, start_on, hosts="a:1,no-such-host:1")
    assert_refused(network, job, r"host no-such-host: unknown host: the name does not resolve \(ssh said: .*\)")


def test_a_command_that_the_host_does_not_have(network: Network, start_on: StartOn) -> None:
    job = start_on(network.hosts["c"], "-np", "2", "-H", "a:1,b:1", "no-such-command")
    assert job.wait(PATIENCE_S) == 127, job
    assert re.search(r"^horovodrun: .*command not found: no-such-command on host [ab]\b", job.err, re.MULTILINE), job
    assert_nothing_left(network, job)


# Accepts connections and says nothing, as a broken sshd does.
SILENT = """
import socket, sys
with socket.create_server((sys.argv[1], int(sys.argv[2]))) as server:
    accepted = []
    while True:
        accepted.append(server.accept()[0])
"""


@contextlib.contextmanager
def saying_nothing(host: Host) -> Iterator[None]:
    """Something that is no sshd listens on the host's port 22."""
    with host.without_sshd():
        listener = subprocess.Popen(host.enter(sys.executable, "-c", SILENT, host.address, "22"))
        host.services.add(listener.pid)
        try:
            wait_until(lambda: 22 in host.ports(), "the silent listener listens")
            yield
        finally:
            listener.kill()
            listener.wait()
            host.services.remove(listener.pid)


@pytest.mark.parametrize("way", ["silent", "unplugged"])
def test_a_host_that_never_answers(network: Network, start_on: StartOn, way: str) -> None:
    b = network.hosts["b"]
    with saying_nothing(b) if way == "silent" else network.cable_pulled(b):
        # ssh's own time-out is as long, and may be the first.
        message = r"host b( did not answer within 3 s \(--start-timeout\)|: no answer: the connection timed out).*"

        def seconds() -> float:
            started = time.monotonic()
            job = launch(network, start_on, "--start-timeout", "3")
            assert_refused(network, job, message)
            took = time.monotonic() - started
            assert took >= 2.9
            return took

        assert_soon(seconds, 3 + 2)  # the time-out, and 2 s to end


def test_port_and_identity_file_are_those_of_the_flags(network: Network, start_on: StartOn, tmp_path: Path) -> None:
    """With sshd on another port and the key under another name, nothing works without the flags."""
    b, c = network.hosts["b"], network.hosts["c"]
    make_key(tmp_path / "other_key")
    key = (tmp_path / "other_key.pub").read_text()
    known = f"[b]:2222 {b.host_key}"
    with (
        b.sshd_on(2222),
        b.with_text(b.home / ".ssh" / "authorized_keys", key),
        c.with_text(c.known_hosts, known),
    ):
        words = ["-np", "1", "-H", "b:1", "-p", "2222"]
        command = ["sh", "-c", "echo on $HOROVOD_HOSTNAME"]
        job = start_on(c, *words, "-i", str(tmp_path / "other_key"), *command)
        assert job.wait(PATIENCE_S) == 0, job
        assert job.lines("[0]<stdout>:") == ["on b"]
        without_key = start_on(c, *words, *command)
        assert_refused(network, without_key, r"host b: ssh refused the login: .*")
        without_port = start_on(c, "-np", "1", "-H", "b:1", "-i", str(tmp_path / "other_key"), *command)
        assert_refused(network, without_port, r"host b: the connection was refused: .*")
