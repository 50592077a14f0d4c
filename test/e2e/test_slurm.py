"""Ranks that srun starts, on a Slurm of two nodes on this machine that the test starts and ends."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_other_starters import RANK, told

from jobs import DEADLINE_S, examples, free_ports, program, run_to_end

DAEMONS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "salloc")

CONF = """
ClusterName=hvd
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4
PartitionName=main Nodes=n1,n2 Default=YES State=UP
"""


def until_it_answers(command: list[str], word: str) -> None:
    end = time.monotonic() + DEADLINE_S
    while word not in (said := subprocess.run(command, capture_output=True, text=True)).stdout:
        if time.monotonic() > end:
            pytest.fail(f"{command}: {said.stdout}{said.stderr}")
        time.sleep(0.05)


@pytest.fixture(scope="module")
def slurm() -> Iterator[None]:
    """SLURM_CONF of the cluster in the environment of the tests."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = [name for name in DAEMONS if shutil.which(name, path=path) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(
            f"no Slurm here (as root, with Debian's slurmctld, slurmd, slurm-client, munge; missing: {missing}): srun is "
            "not tested, only its variables are (config_test)"
        )
    folder = Path(tempfile.mkdtemp(prefix="hvd-slurm-", dir="/var/tmp"))
    folder.chmod(0o711)
    (folder / "state").mkdir()
    (folder / "key").write_bytes(os.urandom(128))
    (folder / "key").chmod(0o600)
    host = socket.gethostname().split(".")[0]
    (folder / "slurm.conf").write_text(CONF.format(host=host, folder=folder, ports=free_ports(3)))
    os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
    munge = [f"--{what}-file={folder}/{what}" for what in ("key", "log", "pid", "seed")]
    commands = [
        ["munged", "-F", "-S", f"{folder}/munge", *munge],
        ["slurmctld", "-D", "-c"],
        ["slurmd", "-D", "-N", "n1"],
        ["slurmd", "-D", "-N", "n2"],
    ]
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            program = shutil.which(command[0], path=path)
            assert program is not None
            with (folder / f"{len(daemons)}.log").open("wb") as log:
                daemons.append(subprocess.Popen([program, *command[1:]], stdout=log, stderr=log))
            if command[0] == "munged":
                until_it_answers(["sh", "-c", f"munge -S {folder}/munge -n >&2 && echo ready"], "ready")
        until_it_answers(["sinfo", "-h", "-o", "%T %D"], "idle 2")
        yield
        # What still ends a job tells the daemons for as long as they are gone.
        until_it_answers(["sh", "-c", 'test -z "$(squeue -h)" && echo over'], "over")
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            try:
                daemon.wait(timeout=1)  # its jobs are over; a slurmd may wait for much longer
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        del os.environ["SLURM_CONF"]
        shutil.rmtree(folder, ignore_errors=True)


def test_srun_starts_ranks_on_two_nodes(slurm: None, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    command = ["srun", "-N2", "-n3", sys.executable, "-c", RANK, str(tmp_path / "out")]
    job = run_to_end(command, {"HOROVOD_SHARED_DIR": str(tmp_path / "jobs")})
    assert job.code == 0, job.text
    # Slurm fills the first node: two tasks and one.
    assert told(tmp_path / "out") == {0: "3 0 2 6.0 6.0", 1: "3 1 2 6.0 6.0", 2: "3 0 1 6.0 6.0"}
    assert list((tmp_path / "jobs").iterdir()) == []


def test_ranks_of_srun_meet_over_pmi2_without_a_folder(slurm: None, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    command = ["srun", "-N2", "-n3", "--mpi=pmi2", sys.executable, "-c", RANK, str(tmp_path / "out")]
    job = run_to_end(command, {"HOME": "/proc/nowhere", "HOROVOD_SHARED_DIR": ""})
    assert job.code == 0, job.text
    assert told(tmp_path / "out") == {0: "3 0 2 6.0 6.0", 1: "3 1 2 6.0 6.0", 2: "3 0 1 6.0 6.0"}


def test_the_batch_script_of_the_documents_runs(slurm: None, tmp_path: Path, horovodrun_path: str) -> None:
    scripts = [text for text in examples("Slurm") if text.startswith("#!")]
    assert len(scripts) == 2  # srun starts the ranks, or horovodrun does
    (tmp_path / "out").mkdir()
    (tmp_path / "train.py").write_text(RANK.replace("sys.argv[1]", repr(str(tmp_path / "out"))))
    programs = tmp_path / "bin"
    programs.mkdir()
    program(programs / "python", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')  # a link is not its environment's
    (programs / "horovodrun").symlink_to(horovodrun_path)
    env = {"PATH": f"{programs}:{os.environ['PATH']}", "HOROVOD_SHARED_DIR": str(tmp_path / "jobs")}
    for text in scripts:
        (tmp_path / "job.sh").write_text(text.replace("ntasks-per-node=4", "ntasks-per-node=2"))
        job = run_to_end(["sbatch", "--wait", "job.sh"], env, cwd=tmp_path)
        assert job.code == 0, job.text + "".join(log.read_text() for log in tmp_path.glob("slurm-*.out"))
        assert told(tmp_path / "out") == {n: f"4 {n % 2} 2 10.0 10.0" for n in range(4)}
        for said in (tmp_path / "out").iterdir():
            said.unlink()


# What is not to reach ranks; and what srun obeys, to the harm of what agents send and get.
TROUBLE = {"FROM_HERE": "x", "CUDA_VISIBLE_DEVICES": "5", "SLURM_LABELIO": "1", "SLURM_STDOUTMODE": "none"}


def test_horovodrun_uses_the_nodes_of_an_allocation(slurm: None, tmp_path: Path, horovodrun_path: str) -> None:
    (tmp_path / "out").mkdir()
    rank = [sys.executable, "-c", RANK, str(tmp_path / "out")]
    # Nothing that has no end of line may be held back. Then the same hosts without the launcher's environment.
    with_env = '"$0" sh -c \'printf "no end${CUDA_VISIBLE_DEVICES-}"; exec "$@"\' sh "$@"'
    both = with_env + ' && "$0" --rsh "$(command -v srun)" --no-env sh -c \'echo "${FROM_HERE-nothing}"\' >&2'
    job = run_to_end(["salloc", "-N2", "-n5", "sh", "-c", both, horovodrun_path, *rank], TROUBLE)
    assert job.code == 0, job.text
    assert "hosts from SLURM_JOB_NODELIST (Slurm): n1:4,n2:1" in job.err
    assert "agents are started by srun; --rsh ssh: by ssh" in job.err
    assert told(tmp_path / "out") == {n: f"5 {n} 4 15.0 15.0" for n in range(4)} | {4: "5 0 1 15.0 15.0"}
    assert sorted(job.out.splitlines()) == [f"[{n}]<stdout>:no end" for n in range(5)]
    assert sorted(job.err.splitlines())[:5] == [f"[{n}]<stdout>:nothing" for n in range(5)]
