"""Who can see what: the job secret and the environment."""

from __future__ import annotations

import os
import sys
import uuid
from pathlib import Path

import pytest
from launcher_job import StartJob, eventually

# Asks the agent for the secret, as a rank does (docs/design/job-bootstrap.md), and prints it.
ASK = """
import os, socket, struct
with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
    s.settimeout(10)
    s.connect("\\0" + os.environ["HOROVOD_AGENT"])
    pid, uid, gid = struct.unpack("3i", s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    assert uid == os.getuid()
    s.sendall(b"HVDAGNT3\\x01" + bytes(4))
    answer = b""
    while chunk := s.recv(100):
        answer += chunk
assert answer[:9] == b"HVDAGNT3\\0" and len(answer) == 81, answer
print("secret", answer[-32:].hex(), flush=True)
"""


@pytest.fixture
def ask(tmp_path: Path) -> str:
    path = tmp_path / "ask.py"
    path.write_text(ASK)
    return f"{sys.executable} {path}"


def secrets_in(text: str) -> list[str]:
    return [line.split("secret ")[1] for line in text.splitlines() if "secret " in line]


def test_a_rank_gets_the_secret_from_its_agent_as_often_as_it_asks(start_job: StartJob, ask: str) -> None:
    job = start_job("-np", "2", "-H", "localhost:1,127.0.0.1:1", "bash", "-c", f"{ask}; bash -c '{ask}'; exec {ask}")
    assert job.wait() == 0, job
    found = secrets_in(job.out)
    assert len(found) == 6
    assert len(set(found)) == 1
    assert len(found[0]) == 64


def test_every_job_has_another_secret(start_job: StartJob, ask: str) -> None:
    first, second = (start_job("-np", "1", *ask.split()) for _ in range(2))
    assert first.wait() == 0
    assert second.wait() == 0
    assert secrets_in(first.out) != secrets_in(second.out)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
def test_another_user_does_not_get_the_secret(start_job: StartJob) -> None:
    script = "import os, socket, struct\nos.setuid(65534)\n" + ASK.replace("assert uid == os.getuid()", "")
    job = start_job("-np", "1", sys.executable, "-c", script)
    assert job.wait() != 0
    assert secrets_in(job.out) == []
    # Turned away before or after it wrote: either way it has no answer.
    assert "AssertionError: b''" in job.err or "ConnectionResetError" in job.err or "BrokenPipeError" in job.err


def test_no_value_of_the_environment_is_on_any_argument_list(start_job: StartJob, fake_ssh: str) -> None:
    value = uuid.uuid4().hex
    job = start_job(
        "-np", "2", "-H", "localhost:1,far-away:1", "--ssh-program", fake_ssh, "sh", "-c", "echo $HVD_TEST_TOKEN; exec sleep 1000",
        env={"HVD_TEST_TOKEN": value},
    )
    for rank in (0, 1):
        job.wait_for(f"[{rank}]<stdout>:{value}\n")
    seen = 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                arguments = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            seen += 1
            assert value.encode() not in arguments, arguments
            assert job.marker.encode() not in arguments, arguments
    assert seen > 5


def test_the_secret_is_in_no_environment_and_on_no_argument_list(start_job: StartJob, ask: str) -> None:
    job = start_job("-np", "1", "sh", "-c", f"{ask}; exec sleep 1000")
    job.wait_for("secret ")
    secret = secrets_in(job.out)[0]
    needles = (secret.encode(), bytes.fromhex(secret))
    # While a process is in exec its environment reads as empty: look when the rank's shell has become what it runs.
    eventually(lambda: job.named("sleep"), "the rank runs its last command")
    processes = job.processes()
    assert len(processes) >= 4  # launcher, guard, agent, rank
    for pid in processes:
        for name in ("cmdline", "environ"):
            content = (Path("/proc") / str(pid) / name).read_bytes()
            assert not any(needle in content for needle in needles)


def test_verbose_masks_what_looks_like_a_secret(start_job: StartJob) -> None:
    job = start_job("-np", "1", "--verbose", "true", env={"MY_API_KEY": "hunter2", "MY_COLOUR": "blue"})
    assert job.wait() == 0
    assert "MY_COLOUR=blue" in job.err
    assert "MY_API_KEY=" in job.err
    assert "hunter2" not in job.err
    assert "host localhost runs rank 0" in job.err


def test_ranks_have_the_environment_of_the_launcher_and_of_the_job(start_job: StartJob) -> None:
    job = start_job(
        "-np", "2", "-H", "localhost:1,127.0.0.1:1", "env",
        env={"HVD_LINES": "a=b;c", "CUDA_VISIBLE_DEVICES": "1", "HOROVOD_RANK": "77", "_HOROVOD_SECRET_KEY": "old"},
    )
    assert job.wait() == 0
    for rank, host in ((0, "localhost"), (1, "127.0.0.1")):
        env = dict(line.split("=", 1) for line in job.lines(f"[{rank}]<stdout>:"))
        assert env["HVD_LINES"] == "a=b;c"
        assert env["CUDA_VISIBLE_DEVICES"] == "1"
        assert "_HOROVOD_SECRET_KEY" not in env
        expected = {
            "HOROVOD_RANK": str(rank), "HOROVOD_SIZE": "2", "HOROVOD_LOCAL_RANK": "0", "HOROVOD_LOCAL_SIZE": "1",
            "HOROVOD_CROSS_RANK": str(rank), "HOROVOD_CROSS_SIZE": "2", "HOROVOD_HOSTNAME": host,
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1", "HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo",
            "PYTHONUNBUFFERED": "1",
        }
        assert {name: env.get(name) for name in expected} == expected
        assert 0 < int(env["HOROVOD_GLOO_RENDEZVOUS_PORT"]) < 65536
        assert env["HOROVOD_AGENT"].startswith("hvd-agent-")
        assert "HOROVOD_GLOO_IFACE" not in env


def test_chosen_interfaces_are_told_to_the_ranks(start_job: StartJob) -> None:
    job = start_job("-np", "1", "--network-interfaces", "lo", "sh", "-c", "echo $HOROVOD_GLOO_IFACE $NCCL_SOCKET_IFNAME")
    assert job.wait() == 0
    assert job.lines("[0]<stdout>:") == ["lo lo"]


def test_a_local_job_listens_on_loopback_alone(start_job: StartJob) -> None:
    job = start_job("-np", "1", "sh", "-c", "echo port $HOROVOD_GLOO_RENDEZVOUS_PORT; exec sleep 1000")
    job.wait_for("port ")
    port = int(job.lines("[0]<stdout>:port ")[0])
    listening = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            local, state = line.split()[1], line.split()[3]
            if state == "0A" and int(local.split(":")[1], 16) == port:
                listening.append(local.split(":")[0])
    assert listening == ["0100007F"]


def test_ranks_start_in_the_directory_of_the_launcher(start_job: StartJob, tmp_path: Path) -> None:
    folder = tmp_path / "with blank"
    folder.mkdir()
    job = start_job("-np", "1", "pwd", cwd=folder)
    assert job.wait() == 0
    assert job.lines("[0]<stdout>:") == [str(folder)]
