"""Ranks that nothing of ours has started: plain processes that meet at a rendezvous server."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from horovod.runner.rendezvous import RendezvousServer
from jobs import free_port

# A rank that does what its standard input says, one word a line, and prints what came of it. It needs no framework.
RANK = """
import ctypes, sys
from horovod._common.native import core
from horovod.common.exceptions import HorovodInternalError

core.init()
print(core.rank(), core.size(), core.local_rank(), core.local_size(), flush=True)
for step, word in enumerate(sys.stdin):
    count = 16 << 20 if word.strip() == "large" else 1
    value = (ctypes.c_float * count)()
    value[0] = value[-1] = core.rank() + 1.0
    address = ctypes.addressof(value)
    call = (core.OP_ALLREDUCE, f"allreduce.{step}", -1, ())
    try:
        core.enqueue(call, (address, address, [count], core.DTYPE_FLOAT32, -1), (core.REDUCE_SUM, 1.0, 1.0, 0), value).wait()
        print(value[0], flush=True)
        assert value[-1] == value[0] and not any(value[1:-1:4099])
    except HorovodInternalError as error:
        print("lost", error, flush=True)
core.shutdown()
"""


class Rank:
    """One such process."""

    def __init__(self, variables: Mapping[str, str], folder: Path) -> None:
        self.log = folder / f"{len(list(folder.iterdir()))}.err"
        with self.log.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-c", RANK],
                env={**os.environ, **variables},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
            )

    def say(self, word: str) -> None:
        assert self.process.stdin is not None
        print(word, file=self.process.stdin, flush=True)

    def hear(self) -> str:
        """The next line that it prints; the job's own deadlines bound the wait."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip() or f"nothing; stderr: {self.error()}"

    def error(self) -> str:
        """What it has printed on stderr when it has ended."""
        self.process.communicate(timeout=60)
        return self.log.read_text(errors="replace")


Ranks = list[Rank]


@pytest.fixture
def ranks() -> Iterator[Ranks]:
    """The ranks that a test has started; the end of the test ends them."""
    started: Ranks = []
    yield started
    for rank in started:
        rank.process.kill()
        rank.process.communicate()


def both_sum(ranks: Ranks) -> None:
    for rank in ranks:
        rank.say("sum")
    assert [rank.hear() for rank in ranks] == ["3.0", "3.0"]


def test_two_processes_and_a_server_are_a_job(ranks: Ranks, tmp_path: Path) -> None:
    with RendezvousServer(2) as server:
        assert stat.S_IMODE(os.stat(server.secret_file).st_mode) == 0o600
        # A process with another job's variables is refused, and the rank that waits goes on waiting.
        ranks.append(Rank(server.environment(0), tmp_path))
        stale = Rank({**server.environment(1), "HOROVOD_SIZE": "3"}, tmp_path)
        assert "HOROVOD_SIZE is 3 in the environment of the process in slot 1" in stale.error()
        ranks.append(Rank(server.environment(1), tmp_path))
        # Which ranks share a host they find out themselves.
        assert [rank.hear() for rank in ranks] == ["0 2 0 2", "1 2 1 2"]
        both_sum(ranks)

        # Who is not of this job is refused at once, and disturbs nobody.
        with pytest.raises(ValueError, match=r"rank 2 is not in 0\.\.1"):
            server.environment(2)
        other = tmp_path / "other_secret"
        other.write_text("5" * 64)
        other.chmod(0o644)
        strangers = [
            Rank({**server.environment(1), "HOROVOD_RANK": "2", "HOROVOD_SIZE": "3"}, tmp_path),
            Rank({**server.environment(1), "HOROVOD_SECRET_FILE": str(other)}, tmp_path),
        ]
        assert "has mode 0644" in strangers[1].error()
        other.chmod(0o600)
        strangers[1] = Rank({**server.environment(1), "HOROVOD_SECRET_FILE": str(other)}, tmp_path)
        assert "slot 2 is not of this job, which has 2: 0..1" in strangers[0].error()
        assert "this process does not have the secret of the job" in strangers[1].error()
        both_sum(ranks)

    # What is connected does not need the server.
    assert not os.path.exists(server.secret_file)
    both_sum(ranks)
    ranks[1].process.kill()
    ranks[0].say("sum")
    assert ranks[0].hear().startswith("lost rank 1")


def test_three_processes_through_tls_and_who_is_refused_and_lost(ranks: Ranks, tmp_path: Path) -> None:
    with RendezvousServer(3, tls=True) as server:
        environments = [{**server.environment(rank), "HOROVOD_SHM": "0"} for rank in range(3)]
        other = tmp_path / "other_secret"
        other.write_text("5" * 64)
        other.chmod(0o600)
        strangers = [
            Rank({**environments[1], "HOROVOD_TLS": "0"}, tmp_path),
            Rank({**environments[1], "HOROVOD_SECRET_FILE": str(other)}, tmp_path),
        ]
        ranks += [Rank(environment, tmp_path) for environment in environments]
        assert [rank.hear() for rank in ranks] == ["0 3 0 3", "1 3 1 3", "2 3 2 3"]
        assert "this job has TLS on: HOROVOD_TLS=1 must be set in all of its processes" in strangers[0].error()
        assert "the server does not speak TLS with the secret of this job" in strangers[1].error()

        # 64 MiB each; the third of them is lost in the middle of one.
        words = 100
        for rank in ranks:
            for _ in range(words):
                rank.say("large")
        assert [rank.hear() for rank in ranks[:2]] == ["6.0", "6.0"]
        ranks[2].process.kill()
        for rank in ranks[:2]:
            heard = next(word for word in (rank.hear() for _ in range(words)) if word != "6.0")
            assert heard.startswith("lost rank 2"), heard


def test_ranks_of_two_servers_with_one_secret_never_meet(ranks: Ranks, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("5" * 64)
    secret.chmod(0o600)
    port = free_port()
    # Were they to meet, they would wait for one another; and through shared memory they have met in init().
    soon = {"HOROVOD_GLOO_TIMEOUT_SECONDS": "10", "HOROVOD_SHM": "0"}
    with RendezvousServer(2, port=port, secret_file=str(secret)) as server:
        ranks += [Rank({**server.environment(rank), **soon}, tmp_path) for rank in range(2)]
        assert [rank.hear() for rank in ranks] == ["0 2 0 2", "1 2 1 2"]
    # They have no connections yet, and ask the next server, which is at the same place, where the others are.
    with RendezvousServer(2, port=port, secret_file=str(secret)) as server:
        later = [Rank({**server.environment(rank), **soon}, tmp_path) for rank in range(2)]
        ranks += later
        assert [rank.hear() for rank in later] == ["0 2 0 2", "1 2 1 2"]
        for rank in ranks[:2]:
            rank.say("sum")
        for rank in ranks[:2]:
            assert "the rendezvous server is not the one that they joined" in rank.hear()
        both_sum(later)


# A server whose process has a forked child when it stops.
FORKS = """
import os, socket, sys
from horovod.runner.rendezvous import RendezvousServer

port = int(sys.argv[1])
server = RendezvousServer(2, port=port)
client = socket.create_connection((server.address, port))
client.settimeout(10)
client.sendall(b"GET /")
ends, holds = os.pipe()
child = os.fork()
if child == 0:
    os.close(holds)
    os.read(ends, 1)
    server.stop()
    os._exit(0)
server.stop()
try:
    assert client.recv(1) == b""
except ConnectionResetError:
    pass
try:
    socket.create_connection((server.address, port), 10)
    print("it listens")
except ConnectionRefusedError:
    print("refused")
RendezvousServer(2, port=port).stop()
os.close(holds)
print(os.waitpid(child, 0)[1])
"""


def test_a_server_stops_although_a_forked_child_has_its_sockets() -> None:
    command = [sys.executable, "-c", FORKS, str(free_port())]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.stdout.split() == ["refused", "0"], result.stderr


def test_horovodrun_serves_ranks_that_it_does_not_start(ranks: Ranks, tmp_path: Path, horovodrun_path: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text("0" * 64)
    secret.chmod(0o644)
    arguments = [horovodrun_path, "--serve", "-np", "2", "--listen", "127.0.0.1", "--secret-file", str(secret)]
    refused = subprocess.run(arguments, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 1
    assert "has mode 0644, expected no permission for group and others" in refused.stderr

    with subprocess.Popen(arguments[:-2], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        variables = dict(server.stdout.readline().strip().split("=", 1) for _ in range(4))
        assert variables["HOROVOD_SIZE"] == "2"
        assert stat.S_IMODE(os.stat(variables["HOROVOD_SECRET_FILE"]).st_mode) == 0o600
        variables["HOROVOD_GLOO_RENDEZVOUS_ADDR"] = "localhost"  # names will do
        ranks += [Rank({**variables, "HOROVOD_RANK": str(rank)}, tmp_path) for rank in range(2)]
        assert [rank.hear().split()[:2] for rank in ranks] == [["0", "2"], ["1", "2"]]
        both_sum(ranks)
        server.send_signal(signal.SIGTERM)
        _, told = server.communicate(timeout=60)
    assert server.returncode == 0
    assert "rendezvous for 2 ranks at 127.0.0.1 port" in told
    assert not os.path.exists(variables["HOROVOD_SECRET_FILE"])
    both_sum(ranks)


def test_however_a_server_ends_it_removes_its_secret(tmp_path: Path, horovodrun_path: str) -> None:
    arguments = [horovodrun_path, "--serve", "-np", "2"]
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    read_end, write_end = os.pipe()
    os.close(read_end)
    unheard = subprocess.run(arguments, stdout=write_end, stderr=subprocess.PIPE, text=True, env=env, timeout=60)
    os.close(write_end)
    assert unheard.returncode == 1
    assert "nobody can read the variables" in unheard.stderr
    assert list(tmp_path.iterdir()) == []

    under_nohup = ["sh", "-c", "trap '' HUP; exec \"$@\"", "sh", *arguments]
    with subprocess.Popen(under_nohup, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env) as server:
        assert server.stdout is not None
        server.stdout.readline()
        files = len(list(tmp_path.iterdir()))
        try:
            server.send_signal(signal.SIGHUP)  # ignored at the start: it would end the server within a millisecond
            with pytest.raises(subprocess.TimeoutExpired):
                server.wait(timeout=0.3)
            server.send_signal(signal.SIGTERM)
            server.communicate(timeout=60)
        finally:
            server.kill()
    assert server.returncode == 0
    assert files == 1
    assert list(tmp_path.iterdir()) == []
