"""Ranks that mpirun, mpiexec or torchrun start without horovodrun: they find each other by themselves."""

from __future__ import annotations

import contextlib
import ctypes.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from jobs import Job, run_to_end

# A rank that needs no framework: it joins, reduces, and does it again in a second session. What it says goes to a file of
# its own, because starters mix the lines of their processes. `argv`: the folder, then what it does.
RANK = """
import ctypes, os, pathlib, signal, sys, time
from horovod._common.session import basics
from horovod._common.native import core

folder, how = pathlib.Path(sys.argv[1]), sys.argv[2:]

def total(name):
    value = (ctypes.c_float * 1)(core.rank() + 1.0)
    address = ctypes.addressof(value)
    call = (core.OP_ALLREDUCE, "allreduce." + name, -1, ())
    core.enqueue(call, (address, address, [1], core.DTYPE_FLOAT32, -1), (core.REDUCE_SUM, 1.0, 1.0, 0), value).wait()
    return value[0]

basics.init()
rank = core.rank()
said = [core.size(), core.local_rank(), core.local_size(), total("one")]
if "dies" in how and rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
if "dies" in how:
    try:
        total("two")
    except Exception as error:
        said = [type(error).__name__]
else:
    basics.shutdown()
    basics.init()
    said.append(total("two"))
part = folder / f".{rank}"
part.write_text(" ".join(map(str, said)))
part.rename(folder / str(rank))  # whole or not at all: a starter may kill us meanwhile
if "rank 0 ends first" in how:
    time.sleep(0.2 * rank)
if "rank 0 ends last" in how:
    time.sleep(0.2 * (core.size() - rank))
"""

AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
OPEN_MPI = ("mpirun.openmpi", "--oversubscribe", "-np")
HYDRA = ("mpiexec.hydra", "-n")


def command_of(starter: tuple[str, ...], ranks: int, folder: Path, *how: str) -> list[str]:
    if shutil.which(starter[0]) is None:
        pytest.skip(f"{starter[0]} is not installed (Debian: openmpi-bin, mpich): its jobs are not tested here")
    folder.mkdir(exist_ok=True)
    return [*starter, str(ranks), sys.executable, "-c", RANK, str(folder), *how]


def variables(tmp_path: Path) -> dict[str, str]:
    return {**AS_ROOT, "HOROVOD_SHARED_DIR": str(tmp_path / "jobs"), "HOROVOD_START_TIMEOUT": "60"}


def told(folder: Path) -> dict[int, str]:
    return {int(file.name): file.read_text() for file in folder.iterdir() if not file.name.startswith(".")}


def test_ranks_of_open_mpi_meet_over_pmix_without_a_folder(tmp_path: Path) -> None:
    # Nobody can make a folder there.
    env = {**AS_ROOT, "HOME": "/proc/nowhere", "HOROVOD_SHARED_DIR": "", "HOROVOD_START_TIMEOUT": "60"}
    job = run_to_end(command_of(OPEN_MPI, 3, tmp_path / "out", "rank 0 ends first"), env)
    assert job.code == 0, job.text
    assert told(tmp_path / "out") == {n: f"3 {n} 3 6.0 6.0" for n in range(3)}


def test_ranks_whose_rank_0_never_comes_give_up(tmp_path: Path) -> None:
    script = "import sys\nif __import__('os').environ['PMI_RANK'] == '0': sys.exit(3)\n" + RANK
    command = command_of(HYDRA, 2, tmp_path / "out")
    command[command.index(RANK)] = script
    job = run_to_end(command, {"HOROVOD_START_TIMEOUT": "2", "HOROVOD_GLOO_TIMEOUT_SECONDS": "2"})
    assert job.code != 0
    assert "not every process of the job has come to hvd.init() in time" in job.text


@pytest.mark.parametrize("starter", [OPEN_MPI, HYDRA], ids=["openmpi", "hydra"])
def test_two_jobs_at_once_find_their_own_ranks_whoever_ends_first(tmp_path: Path, starter: tuple[str, ...]) -> None:
    with contextlib.ExitStack() as folders:
        jobs = []
        for ranks, how in ((3, "rank 0 ends first"), (2, "rank 0 ends last")):
            # Two of Open MPI that make one folder for their sessions at the same time fail, now and then; its path is short.
            sessions = folders.enter_context(tempfile.TemporaryDirectory(prefix="mpi"))
            env = {**os.environ, **variables(tmp_path), "TMPDIR": sessions}
            command = command_of(starter, ranks, tmp_path / str(ranks), how)
            jobs.append(subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True))
        for job in jobs:
            _, err = job.communicate(timeout=120)
            assert job.returncode == 0, err
    assert told(tmp_path / "3") == {0: "3 0 3 6.0 6.0", 1: "3 1 3 6.0 6.0", 2: "3 2 3 6.0 6.0"}
    assert told(tmp_path / "2") == {0: "2 0 2 3.0 3.0", 1: "2 1 2 3.0 3.0"}
    # Open MPI's ranks met there; nothing of them stays, not even when they have a folder of their own.
    assert starter != OPEN_MPI or list((tmp_path / "jobs").iterdir()) == []


@pytest.mark.parametrize("starter", [OPEN_MPI, HYDRA], ids=["openmpi", "hydra"])
def test_a_killed_rank_ends_the_job(tmp_path: Path, starter: tuple[str, ...]) -> None:
    job = run_to_end(command_of(starter, 2, tmp_path / "out", "dies"), variables(tmp_path))
    assert job.code != 0, job.text
    # Its starter may be quicker than the other rank with its file.
    assert told(tmp_path / "out") in ({0: "HorovodInternalError"}, {}), job.text


# `argv`: the folder, who begins and who ends first.
BESIDE_MPI = """
import sys
from pathlib import Path
import numpy
from horovod._common.session import basics
from horovod._common.native import core

def starts_mpi():
    from mpi4py import MPI  # which initializes it
    return MPI

def ends(who):
    basics.shutdown() if who == "ours" else MPI.Finalize()

if sys.argv[2] == "mpi":
    MPI = starts_mpi()
basics.init()
MPI = starts_mpi()
world, value = MPI.COMM_WORLD, numpy.zeros(1, numpy.float32)
for step in range(3):
    sent = world.allreduce(core.rank() + step)
    value[:] = sent + core.rank()
    address = value.ctypes.data
    call = (core.OP_ALLREDUCE, "beside", -1, ())
    core.enqueue(call, (address, address, [1], core.DTYPE_FLOAT32, -1), (core.REDUCE_SUM, 1.0, 1.0, 0), value).wait()
Path(sys.argv[1], str(world.rank)).write_text(f"{world.size} {core.rank()} {core.size()} {value[0]}")
ends(sys.argv[3])
ends("ours" if sys.argv[3] == "mpi" else "mpi")
"""


@pytest.mark.parametrize("first", ["mpi", "ours"])
@pytest.mark.parametrize("starter", [OPEN_MPI, HYDRA], ids=["openmpi", "hydra"])
def test_mpi_works_beside_ours_whoever_begins_and_ends(tmp_path: Path, starter: tuple[str, ...], first: str) -> None:
    env = variables(tmp_path)
    if starter == HYDRA:  # mpi4py's wheel asks for MPICH under the name that most give it
        libraries = tmp_path / "lib"
        libraries.mkdir()
        found = ctypes.util.find_library("mpich")
        assert found is not None
        (libraries / "libmpi.so.12").symlink_to(Path("/usr/lib", f"{platform.machine()}-linux-gnu", found))
        env |= {"LD_LIBRARY_PATH": str(libraries), "MPI4PY_MPIABI": "mpich"}
    command = command_of(starter, 3, tmp_path / "out", first, first)
    command[command.index(RANK)] = BESIDE_MPI
    job = run_to_end(command, env)
    assert job.code == 0, job.text
    assert told(tmp_path / "out") == {n: f"3 {n} 3 {3 * 9.0 + 3}" for n in range(3)}


def test_torchrun_starts_ranks(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torchrun is torch's")
    script = tmp_path / "train.py"
    script.write_text(RANK)
    (tmp_path / "out").mkdir()
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    job = run_to_end([*command, str(tmp_path / "out")], variables(tmp_path))
    assert job.code == 0, job.text
    assert told(tmp_path / "out") == {0: "2 0 2 3.0 3.0", 1: "2 1 2 3.0 3.0"}


def refused(tmp_path: Path, env: Mapping[str, str | None]) -> str:
    """What a process that says it is one of two is told."""
    known = {**os.environ, **variables(tmp_path), **env}
    job = subprocess.run(
        [sys.executable, "-c", "from horovod._common.native import core; core.init()"],
        env={name: value for name, value in known.items() if value is not None},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert job.returncode == 1
    return job.stderr


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    ompi = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}
    assert "no variable tells its job from others; set HOROVOD_JOB_ID" in refused(tmp_path, ompi)
    short = {**ompi, "HOROVOD_JOB_ID": "j", "HOROVOD_START_TIMEOUT": "1", "HOROVOD_GLOO_TIMEOUT_SECONDS": "1"}
    text = refused(tmp_path, short)
    assert "rank 1 of 2, which mpirun (Open MPI) started: rank 0 has announced nothing in the folder" in text
    assert "HOROVOD_SHARED_DIR names another one" in text
    # PMIx is spoken of, and nobody answers: a rank that it does answer would wait there, and each says where it is.
    spoken_of = {"PMIX_NAMESPACE": "1", "PMIX_RANK": "1", "HOME": str(tmp_path), "HOROVOD_SHARED_DIR": None}
    without = refused(tmp_path, {**short, **spoken_of})
    assert "rank 0 has announced nothing in the folder" in without
    assert "(PMIx does not answer this rank; those that it answers meet there, and never look here)" in without
    nowhere = {**ompi, "PMIX_NAMESPACE": "1", "HOME": None, "HOROVOD_SHARED_DIR": None}
    assert "neither HOME nor HOROVOD_SHARED_DIR says" in refused(tmp_path, nowhere)
    both = {**ompi, "PMI_RANK": "0", "PMI_SIZE": "2"}
    assert "two starters say different things: OMPI_COMM_WORLD_RANK=1" in refused(tmp_path, both)


def test_a_place_to_meet_may_be_said_by_hand(tmp_path: Path, horovodrun_path: str) -> None:
    server_command = [horovodrun_path, "--serve", "-np", "2"]
    with subprocess.Popen(server_command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        given = dict(server.stdout.readline().strip().split("=", 1) for _ in range(4))
        nowhere = {**variables(tmp_path), **given, "HOROVOD_SHARED_DIR": "/nowhere/at/all"}
        try:
            job: Job = run_to_end(command_of(OPEN_MPI, 2, tmp_path / "out"), nowhere)
        finally:
            server.terminate()
    assert job.code == 0, job.text
    assert told(tmp_path / "out") == {0: "2 0 2 3.0 3.0", 1: "2 1 2 3.0 3.0"}
