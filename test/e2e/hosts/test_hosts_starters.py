"""Jobs that mpirun and mpiexec start on several hosts, over ssh: their ranks find each other without horovodrun."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from hosts_job import ROOT
from netns import Network

from jobs import run_to_end

sys.path.append(str(Path(__file__).parent.parent))

from test_other_starters import AS_ROOT, RANK, told

OPEN_MPI = ["mpirun.openmpi", "-H", "a:2,b:2", "-np", "4", "-mca", "oob_tcp_if_include", "10.77.0.0/24"]
STARTERS = {
    "openmpi by pmix": OPEN_MPI,
    "openmpi by a folder": [*OPEN_MPI, "-x", "HOROVOD_SHARED_DIR"],
    "hydra": ["mpiexec.hydra", "-launcher", "ssh", "-hosts", "a:2,b:2", "-n", "4"],
}


@pytest.mark.parametrize("starter", list(STARTERS))
def test_ranks_on_two_hosts_find_rank_0(network: Network, tmp_path: Path, starter: str) -> None:
    command = STARTERS[starter]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed (Debian: openmpi-bin, mpich): its jobs are not tested here")
    a = network.hosts["a"]
    (tmp_path / "out").mkdir()
    folder = str(tmp_path / "jobs") if "HOROVOD_SHARED_DIR" in command else ""
    env = {**AS_ROOT, "HOME": str(a.home), "HOROVOD_SHARED_DIR": folder}
    rank = [sys.executable, "-c", RANK, str(tmp_path / "out")]
    job = run_to_end(a.enter("env", "-C", str(ROOT), *command, *rank), env)
    assert job.code == 0, job.text
    numbers = {0: "0 2", 1: "1 2", 2: "0 2", 3: "1 2"}
    assert told(tmp_path / "out") == {rank: f"4 {local} 10.0 10.0" for rank, local in numbers.items()}
    assert list((tmp_path / "jobs").glob("*")) == list((a.home / ".horovod").glob("*")) == []
