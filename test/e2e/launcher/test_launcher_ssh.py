"""Remote hosts: a real sshd on loopback, known to a real ssh client under an alias that makes it remote."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from launcher_job import GONE_S, StartJob, eventually

from jobs import assert_soon, free_port, program

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
MISSING = [name for name in ("ssh", "ssh-keygen") if shutil.which(name) is None] + ([] if SSHD else ["sshd"])
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")

# What start-up files print comes before the agent's hello.
NOISE = "/bin/sh -c 'echo \"Welcome, $USER\"; printf prompt; exec /bin/sh -c \"$SSH_ORIGINAL_COMMAND\"'"


@dataclass
class Sshd:
    """A server, and an ssh program that knows it as `remote-a` and `remote-b`."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]

    @property
    def program(self) -> str:
        return str(self.folder / "ssh")

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    def configure(self, **options: str) -> None:
        """Writes the client's configuration, with options changed or added."""
        all_options = {
            "HostName": "127.0.0.1",
            "Port": str(self.port),
            "IdentityFile": str(self.folder / "client_key"),
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": str(self.known_hosts),
            "GlobalKnownHostsFile": "/dev/null",
            **options,
        }
        text = "Host remote-a remote-b\n" + "".join(f"  {name} {value}\n" for name, value in all_options.items())
        (self.folder / "client_config").write_text(text)


def make_key(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    folder = tmp_path / "sshd"
    folder.mkdir()
    make_key(folder / "host_key")
    make_key(folder / "client_key")
    shutil.copy(folder / "client_key.pub", folder / "authorized_keys")
    port = free_port()
    (folder / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {folder}/host_key\nAuthorizedKeysFile {folder}/authorized_keys\n"
        f"StrictModes no\nUsePAM no\nPidFile none\nPasswordAuthentication no\nForceCommand {NOISE}\n"
    )
    program(folder / "ssh", f'#!/bin/sh\nexec ssh -F {folder}/client_config "$@"\n')
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where sshd drops privileges to
    assert SSHD is not None
    with (folder / "sshd.log").open("wb") as log:
        process = subprocess.Popen([SSHD, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=log)
    server = Sshd(folder, port, process)
    server.configure()
    try:
        eventually(lambda: is_listening(port) or process.poll() is not None, "sshd listens")
        assert process.poll() is None, (folder / "sshd.log").read_text()
        yield server
    finally:
        process.kill()
        process.wait()


def test_ranks_run_on_remote_hosts(start_job: StartJob, sshd: Sshd) -> None:
    job = start_job(
        "-np", "5", "-H", "localhost:1,remote-a:2,remote-b:2", "--ssh-program", sshd.program,
        "sh", "-c", "echo $HOROVOD_RANK $HOROVOD_HOSTNAME $HOROVOD_LOCAL_RANK $HVD_TEST_VALUE; pwd",
        env={"HVD_TEST_VALUE": "from here"},
    )
    assert job.wait() == 0, job
    for rank, host, local in ((0, "localhost", 0), (1, "remote-a", 0), (2, "remote-a", 1), (3, "remote-b", 0), (4, "remote-b", 1)):
        assert job.lines(f"[{rank}]<stdout>:") == [f"{rank} {host} {local} from here", str(sshd.folder.parent)]
    assert "Welcome" not in job.out + job.err


def test_the_exit_code_of_a_remote_rank_comes_back(start_job: StartJob, sshd: Sshd) -> None:
    job = start_job("-np", "1", "-H", "remote-a:1", "--ssh-program", sshd.program, "sh", "-c", "exit 9")
    assert job.wait() == 9
    assert "rank 0 on host remote-a (pid " in job.err
    job = start_job("-np", "1", "-H", "remote-a:1", "--ssh-program", sshd.program, "no-such-command")
    assert job.wait() == 127
    assert "command not found: no-such-command on host remote-a" in job.err


FAMILY = "trap '' TERM; sleep 1001 & setsid sleep 1002 & echo ready $PPID; while :; do sleep 1; done"


def remote_processes(marker: str) -> list[int]:
    """Ranks at the other end have the marker, too: the environment travels."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if marker.encode() in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
            except OSError:
                continue
    return found


@pytest.mark.parametrize("victim", ["launcher", "ssh", "agent"])
def test_nothing_is_left_behind_on_a_remote_host(start_job: StartJob, sshd: Sshd, victim: str) -> None:
    job = start_job("-np", "2", "-H", "remote-a:2", "--ssh-program", sshd.program, "sh", "-c", FAMILY)
    eventually(lambda: job.out.count(">:ready ") == 2, "both ranks are ready")
    if victim == "launcher":
        job.signal(signal.SIGKILL)
        assert job.wait() == 137
    elif victim == "ssh":
        os.kill(job.named("ssh")[0], signal.SIGKILL)
        assert job.wait() == 1
        assert "lost host remote-a: " in job.err
        assert "was killed by signal 9" in job.err
    else:
        # The remote agent's own environment is sshd's.
        agent = int(job.lines("[0]<stdout>:ready ")[0])
        assert Path(f"/proc/{agent}/comm").read_text() == "hvd-agent\n"
        os.kill(agent, signal.SIGKILL)
        assert job.wait() == 1
        assert "lost host remote-a: " in job.err
    eventually(lambda: not remote_processes(job.marker), "all ranks are gone", GONE_S)


def test_an_interrupt_reaches_remote_ranks(start_job: StartJob, sshd: Sshd) -> None:
    script = "trap 'echo got INT; exit 0' INT; echo ready; while :; do sleep 0.05; done"
    job = start_job("-np", "1", "-H", "remote-a:1", "--ssh-program", sshd.program, "sh", "-c", script)
    job.wait_for(">:ready\n")
    job.signal(signal.SIGINT)
    assert job.wait() == 130
    assert "[0]<stdout>:got INT" in job.out


def failed_start(start_job: StartJob, sshd: Sshd, *flags: str) -> str:
    """The messages of a job that cannot reach its remote host; no rank may have run anywhere."""
    said: list[str] = []

    def seconds() -> float:
        started = time.monotonic()
        job = start_job("-np", "2", "-H", "localhost:1,remote-a:1", "--ssh-program", sshd.program, *flags, "echo", "ran")
        assert job.wait() == 1
        took = time.monotonic() - started
        assert "ran" not in job.out
        job.wait_all_gone()
        assert job.err.startswith("horovodrun: host remote-a: ")
        assert all(line.startswith("    ") for line in job.err.splitlines()[1:])  # what ssh said in several lines
        said.append(job.err)
        return took

    assert_soon(seconds, 15)
    return said[-1]


def test_an_unknown_host(start_job: StartJob, sshd: Sshd) -> None:
    sshd.configure(HostName="no-such-host.invalid")
    assert "unknown host: the name does not resolve" in failed_start(start_job, sshd)


def test_a_host_without_sshd(start_job: StartJob, sshd: Sshd) -> None:
    with socket.socket() as taken:  # so that nobody else listens there meanwhile
        taken.bind(("127.0.0.1", 0))
        sshd.configure(Port=str(taken.getsockname()[1]))
        assert "the connection was refused: is sshd running there" in failed_start(start_job, sshd)


def test_a_login_that_is_refused(start_job: StartJob, sshd: Sshd) -> None:
    (sshd.folder / "authorized_keys").write_text("")
    said = failed_start(start_job, sshd)
    assert "ssh refused the login: it must work without a password" in said
    assert "Permission denied (publickey" in said


def test_a_host_key_that_has_changed(start_job: StartJob, sshd: Sshd) -> None:
    make_key(sshd.folder / "other_key")
    kind, key, *_ = (sshd.folder / "other_key.pub").read_text().split()
    known = f"[127.0.0.1]:{sshd.port} {kind} {key}\n"
    sshd.known_hosts.write_text(known)
    assert re.search(r"its host key has changed: .*known_hosts", failed_start(start_job, sshd))
    assert sshd.known_hosts.read_text() == known  # it was not accepted behind the user's back


def test_a_host_key_that_is_not_known(start_job: StartJob, sshd: Sshd) -> None:
    assert "its host key is not known" in failed_start(start_job, sshd, "--ssh-host-keys", "strict")
    assert not sshd.known_hosts.exists()
    # The default accepts it, and remembers it for strict.
    for flags in ((), ("--ssh-host-keys", "strict")):
        job = start_job("-np", "1", "-H", "remote-a:1", "--ssh-program", sshd.program, *flags, "echo", "ran")
        assert job.wait() == 0, job
    assert sshd.known_hosts.read_text() != ""


def test_a_host_without_horovodrun(start_job: StartJob, sshd: Sshd) -> None:
    said = failed_start(start_job, sshd, "--agent-path", "/no/such/horovodrun")
    assert re.search("there is no /no/such/horovodrun; install the same version there.*--agent-path", said)


def test_something_else_answers(start_job: StartJob, sshd: Sshd) -> None:
    assert "before the agent answered" in failed_start(start_job, sshd, "--agent-path", "/bin/echo")


def test_a_login_that_is_turned_away_for_now_is_tried_again(start_job: StartJob, fake_ssh: str, tmp_path: Path) -> None:
    busy = program(
        tmp_path / "busy_ssh",
        f"#!/bin/sh\necho try >> {tmp_path}/tries\n"
        f"if [ $(wc -l < {tmp_path}/tries) -le 2 ]; then\n"
        "  echo 'kex_exchange_identification: Connection closed by remote host' >&2; exit 255\nfi\n"
        f'exec {fake_ssh} "$@"\n',
    )
    # By its own name ssh is asked for an alias first; an address needs no such question.
    job = start_job("-np", "1", "-H", "203.0.113.9:1", "--ssh-program", busy, "echo", "ran")
    assert job.wait() == 0, job
    assert job.lines("[0]<stdout>:") == ["ran"]
    assert job.err == ""
    assert (tmp_path / "tries").read_text().count("try") == 3


@pytest.mark.slow
def test_a_login_that_is_always_turned_away_is_an_error(start_job: StartJob, tmp_path: Path) -> None:
    turned_away = "echo 'kex_exchange_identification: Connection closed' >&2; exit 255"
    busy = program(tmp_path / "busy_ssh", f"#!/bin/sh\necho try >> {tmp_path}/tries\n{turned_away}\n")
    job = start_job("-np", "1", "-H", "203.0.113.9:1", "--ssh-program", busy, "true")
    assert job.wait() == 1
    assert "host 203.0.113.9: sshd closed the connection before the login (too many at once? see MaxStartups)" in job.err
    assert (tmp_path / "tries").read_text().count("try") == 5


def test_an_sshd_that_never_answers(start_job: StartJob, sshd: Sshd) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        sshd.configure(Port=str(silent.getsockname()[1]))
        host = ("-H", "remote-a:1", "--ssh-program", sshd.program)

        def seconds() -> float:
            started = time.monotonic()
            job = start_job("-np", "1", *host, "--start-timeout", "2", "true")
            assert job.wait() == 1
            took = time.monotonic() - started
            assert "host remote-a" in job.err
            job.wait_all_gone()
            return took

        assert_soon(seconds, 10)


def test_a_chosen_directory_is_where_ranks_of_all_hosts_start_or_an_error(
    start_job: StartJob, fake_ssh: str, tmp_path: Path
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text("import os\nprint(os.getcwd(), os.environ['PWD'])\n")
    hosts = ("-np", "2", "-H", "localhost:1,far-away:1", "--ssh-program", fake_ssh)
    job = start_job(*hosts, "--wdir", "project", "train.py")  # from the folder above
    assert job.wait() == 0, job
    for rank in range(2):
        assert job.lines(f"[{rank}]<stdout>:") == [f"{folder} {folder}"]
    job = start_job("-np", "1", "-H", "far-away:1", "--ssh-program", fake_ssh, "-wdir", f"{tmp_path}/none", "touch", "ran")
    assert job.wait() == 1
    assert f"host far-away: its agent says: --wdir: there is no directory {tmp_path}/none there" in job.err
    assert not (Path.home() / "ran").exists()


def test_a_directory_that_is_not_there_is_told(start_job: StartJob, fake_ssh: str, tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    removing_ssh = program(tmp_path / "removing_ssh", f'#!/bin/sh\ncd /\nrmdir {folder}\nexec {fake_ssh} "$@"\n')
    job = start_job("-np", "1", "-H", "far-away:1", "--ssh-program", removing_ssh, "pwd", cwd=folder)
    assert job.wait() == 0
    assert f"host far-away: there is no directory {folder} there; ranks start in {Path.home()}\n" in job.err
    assert job.lines("[0]<stdout>:") == [str(Path.home())]
