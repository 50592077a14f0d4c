"""Hosts that call in: --join and --wait-for-hosts. All are this machine, under names of their own."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from launcher_job import ADDS_UP, RunningJob, StartJob, eventually, make_token

from jobs import DEADLINE_S

# The ranks add up their numbers, once the test lets them.
RANK = ADDS_UP + """
import os, pathlib, sys, time
print(os.environ["HOROVOD_HOSTNAME"], core.local_rank(), value[0], os.environ["OF_THE_USER"])
print(("x" * 999 + "\\n") * 3000, end="")
print("SSH_CONNECTION" in os.environ, flush=True)
if core.rank() == 0:
    while not pathlib.Path(sys.argv[1]).exists():
        time.sleep(0.01)
core.shutdown()  # who ends without it is lost for those that still wait
"""
STUBBORN = "trap '' TERM; echo ready; while :; do sleep 0.1; done"
OBEDIENT = "echo ready; exec sleep 1000"


class Gathering:
    """A launcher that waits, and the hosts that call it."""

    def __init__(self, start_job: StartJob, token: Path, hosts: int, *arguments: str, env: dict[str, str] | None = None) -> None:
        self.start_job = start_job
        self.token = token
        waits = ("--wait-for-hosts", str(hosts), "--listen", "127.0.0.1", "--token-file", str(token))
        self.job = start_job(*waits, *arguments, env=env)
        self.job.wait_for(f"waits for {hosts} host")
        found = re.search(r" at (127\.0\.0\.1:\d+)\n", self.job.err)
        assert found, self.job
        self.address = found[1]

    def join(self, name: str, *flags: str, token: Path | None = None) -> RunningJob:
        who = ("--host-name", name, "--token-file", str(token or self.token))
        return self.start_job("--join", self.address, *who, *flags, env={"SSH_CONNECTION": "192.0.2.1 5 192.0.2.2 22"})


def refused(host: RunningJob, message: str) -> None:
    assert host.wait() == 1, host
    assert message in host.err, host


def test_hosts_that_call_in_are_the_hosts_of_the_job(start_job: StartJob, tmp_path: Path) -> None:
    token = make_token(tmp_path / "token")
    end = tmp_path / "end"
    gathering = Gathering(
        start_job, token, 2, "-np", "3", sys.executable, "-c", RANK, str(end), env={"OF_THE_USER": "a secret of mine"}
    )
    # Strangers, and hosts that may not come.
    address, port = gathering.address.split(":")
    with socket.create_connection((address, int(port)), 10) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert stranger.recv(100) == b""
    first = gathering.join("n10")
    refused(gathering.join("n11", token=make_token(tmp_path / "other")), "does not have the token of")
    open_token = make_token(tmp_path / "open")
    open_token.chmod(0o644)
    refused(gathering.join("n11", token=open_token), "has mode 0644")
    refused(gathering.join("me@n11"), "is more than the name of a host")
    second = gathering.join("n2")
    job = gathering.job
    job.wait_for("[0]<stdout>:False")
    refused(gathering.join("n3"), "the job has its 2 hosts already")
    refused(gathering.join("n2"), "a host of the name n2 has joined already, and the job has begun")
    # Nothing of the user's, nor of the job's, is an argument.
    arguments = [text for one in (job, first, second) for text in one.processes().values()]
    assert arguments
    assert not [text for text in arguments if "secret of mine" in text or token.read_text().strip() in text]
    end.touch()
    assert job.wait() == 0, job
    said = [job.lines(f"[{rank}]<stdout>:") for rank in range(3)]
    assert [lines[0] for lines in said] == [f"{host} 6.0 a secret of mine" for host in ("n2 0", "n2 1", "n10 0")]
    assert all(lines[1:] == ["x" * 999] * 3000 + ["False"] for lines in said)
    for host in (first, second):
        assert host.wait() == 0, host
        assert (host.out, host.err) == ("", "")
        host.wait_all_gone()
    job.wait_all_gone()


def test_nobody_waits_for_ever(start_job: StartJob, tmp_path: Path) -> None:
    token = make_token(tmp_path / "token")
    gathering = Gathering(start_job, token, 2, "-np", "2", "true")
    twins = [gathering.join("n1"), gathering.join("n1")]
    eventually(lambda: any(host.process.poll() is not None for host in twins), "one of two of one name is refused")
    lost, left = sorted(twins, key=lambda host: host.process.poll() is None)
    refused(lost, "a host of the name n1 has joined already, from 127.0.0.1; --host-name gives this one another name")
    gathering.job.signal(signal.SIGKILL)
    refused(left, "has gone before the job has begun: the other end has closed the connection")
    nobody = gathering.join("n1", "--start-timeout", "1")
    alone = Gathering(start_job, token, 2, "-np", "2", "--start-timeout", "1", "true").job
    assert alone.wait() == 1
    assert "after 1 s (--start-timeout) 0 of 2 hosts have joined; each calls" in alone.err
    refused(nobody, f"nobody waits for hosts at {gathering.address}, for 1 s (--start-timeout): connection refused")


def test_hosts_of_one_node_share_local_ranks_and_end_with_their_parents(
    start_job: StartJob, tmp_path: Path, horovodrun_path: str
) -> None:
    token = make_token(tmp_path / "token")
    names = "HOROVOD_RANK HOROVOD_LOCAL_RANK HOROVOD_LOCAL_SIZE HOROVOD_CROSS_RANK HOROVOD_HOSTNAME".split()
    command = "echo " + " ".join(f"${name}" for name in names) + "; exec sleep 1000"
    gathering = Gathering(start_job, token, 3, "-np", "3", "sh", "-c", command)
    refused(gathering.join("n3", "--node-name", "a:22"), "is more than the name of a host")
    late = gathering.join("n3", "--end-with-parent", "1")
    assert late.wait() == 143, late
    hosts = [gathering.join("task-2", "--node-name", "x"), gathering.join("task-1")]
    words = f"'{horovodrun_path}' --join {gathering.address} --token-file '{token}' --host-name task-0"
    parent = subprocess.Popen(["sh", "-c", f"{words} --node-name x --end-with-parent $$ & wait"])
    try:
        job = gathering.job
        eventually(lambda: job.out.count("\n") == 3, f"three ranks run {job}")
        assert sorted(job.out.splitlines()) == [
            "[0]<stdout>:0 0 2 0 x",
            "[1]<stdout>:1 1 2 0 x",
            "[2]<stdout>:2 0 1 1 task-1",
        ]
    finally:
        parent.kill()
        parent.wait()
    assert job.wait() == 1, job
    assert "lost host task-0" in job.err, job
    for one in (job, *hosts):
        one.wait_all_gone()


@pytest.mark.parametrize("killed", ["launcher", "host by its scheduler", "host at once"])
def test_a_death_ends_the_rest(start_job: StartJob, tmp_path: Path, killed: str) -> None:
    token = make_token(tmp_path / "token")
    command = STUBBORN if killed == "launcher" else OBEDIENT
    gathering = Gathering(start_job, token, 2, "-np", "2", "sh", "-c", command)
    hosts = [gathering.join("n1"), gathering.join("n2")]
    job = gathering.job
    eventually(lambda: job.out.count(">:ready\n") == 2, f"both ranks are ready {job}")
    if killed == "launcher":
        job.signal(signal.SIGKILL)
        assert job.wait() == 137
        for host in hosts:
            refused(host, "lost the launcher at")
    elif killed == "host by its scheduler":
        hosts[1].signal(signal.SIGTERM)
        assert hosts[1].wait() == 143, hosts[1]
        assert job.wait() == 1, job
        assert "lost host n2: " in job.err, job
        assert hosts[0].wait() == 0, hosts[0]
    else:
        hosts[1].signal(signal.SIGKILL)
        assert job.wait() == 1, job
        assert "lost host n2: the other end has closed the connection" in job.err, job
        assert hosts[0].wait() == 0, hosts[0]
    for one in (job, *hosts):
        one.wait_all_gone()


def test_results_need_a_socket_before_any_host_is_waited_for(horovodrun_path: str, tmp_path: Path) -> None:
    waits = ("--wait-for-hosts", "1", "--listen", "127.0.0.1", "--token-file", str(make_token(tmp_path / "token")))
    with (tmp_path / "results").open("w") as file:
        descriptor = file.fileno()
        job = subprocess.run(
            [horovodrun_path, *waits, "-np", "1", "--results-fd", str(descriptor), "true"],
            pass_fds=[descriptor],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
    assert job.returncode == 1
    assert job.stderr.startswith(f"horovodrun: --results-fd {descriptor}: expected the descriptor of a connected"), job
