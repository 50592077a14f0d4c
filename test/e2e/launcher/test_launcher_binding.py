"""--bind and --bind-gpu: which processors and which GPU a rank gets."""

from __future__ import annotations

import os
import sys

import pytest
from launcher_job import StartJob

SHOW = (
    "import os; print(sorted(os.sched_getaffinity(0)),"
    " *(os.environ.get(n) for n in ('CUDA_VISIBLE_DEVICES', 'CUDA_DEVICE_ORDER', 'OMP_NUM_THREADS')))"
)


def test_ranks_get_cores_and_gpus_of_their_own(start_job: StartJob) -> None:
    cpus = sorted(os.sched_getaffinity(0))[:2]
    if len(cpus) < 2:
        pytest.skip("--bind core of two ranks needs two processors, and this machine lets us use one")
    flags = ("-np", "2", "--bind", "core", "--bind-gpu", "--verbose", sys.executable, "-c", SHOW)
    job = start_job(*flags, on_cores=set(cpus), env={"CUDA_VISIBLE_DEVICES": "GPU-7e,3,4", "OMP_NUM_THREADS": None})
    if job.wait() == 1 and "it has 1 core that this job may use" in job.err:
        pytest.skip(f"processors {cpus} are one core: two ranks can't have one each")
    assert job.lines("[0]<stdout>:") == [f"[{cpus[0]}] GPU-7e None 1"]
    assert job.lines("[1]<stdout>:") == [f"[{cpus[1]}] 3 None 1"]
    assert f"local rank 0: cpus {cpus[0]}, GPU GPU-7e; local rank 1: cpus {cpus[1]}, GPU 3" in job.err


def test_more_ranks_than_cores_or_gpus_is_an_error(start_job: StartJob) -> None:
    one = {min(os.sched_getaffinity(0))}
    job = start_job("-np", "2", "--bind", "core", "true", on_cores=one)
    assert job.wait() == 1
    assert "--bind core: it has 1 core that this job may use, for 2 ranks, expected one for each" in job.err
    job = start_job("-np", "2", "--bind-gpu", "true", env={"CUDA_VISIBLE_DEVICES": "0"})
    assert job.wait() == 1
    assert "--bind-gpu: it has 1 GPU that this job may use, for 2 ranks, expected one for each" in job.err


def test_a_dry_run_shows_the_cores_of_this_host(start_job: StartJob) -> None:
    flags = ("--dry-run", "--bind", "core", "--bind-gpu", "-np", "3", "-H", "localhost:2,elsewhere:1", "true")
    env = {"HWLOC_SYNTHETIC": "package:2 numa:1 core:4 pu:2", "CUDA_VISIBLE_DEVICES": "0,1"}
    job = start_job(*flags, env=env)
    assert job.wait() == 0
    assert "  rank 0, local rank 0: cpus 0-7, GPU 0\n  rank 1, local rank 1: cpus 8-15, GPU 1\n" in job.out
    assert "  rank 2, local rank 0: its cpus and GPU are chosen on that host\n" in job.out
