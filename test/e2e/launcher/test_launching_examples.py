"""What docs/launching.md says is run as it stands there, with imitations of what is not on this machine."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import pytest

from jobs import examples, program, run_to_end

TRAIN = """
import os, pathlib
from horovod._common.native import core
from horovod._common.session import basics
basics.init()
host = os.environ.get("HOROVOD_HOSTNAME", "no name")
said = f"rank {core.rank()} of {core.size()} on {host}{os.environ.get('IN_CONTAINER', '')}"
pathlib.Path(__file__).with_name(f"said.{core.rank()}").write_text(said)  # starters mix the lines of their processes
basics.shutdown()
"""
APPTAINER = '#!/bin/sh\n[ "$1 $2 $3" = "exec --nv image.sif" ] || exit 9\nshift 3\nIN_CONTAINER=", in a container" exec "$@"\n'


@pytest.fixture
def site(tmp_path: Path, fake_ssh: str, horovodrun_path: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with train.py, and a PATH with python, horovodrun, ssh and apptainer."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "horovodrun").symlink_to(horovodrun_path)
    ssh = Path(fake_ssh).read_text().replace("PATH=/usr/local/bin", f"PATH={programs}:/usr/local/bin")
    python = f'#!/bin/sh\nexec "{sys.executable}" "$@"\n'
    # A link would not be the python of its virtual environment.
    for name, text in (("python", python), ("apptainer", APPTAINER), ("ssh", ssh)):
        program(programs / name, text)
    (tmp_path / "train.py").write_text(TRAIN)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return tmp_path


def ranks_of(command: str, site: Path, env: dict[str, str] | None = None) -> list[str]:
    """What the ranks said, in order."""
    job = run_to_end(["sh", "-c", command], env, cwd=site)
    assert job.code == 0, job.text
    said = list(site.glob("said.*"))
    lines = sorted(file.read_text() for file in said)
    for file in said:
        file.unlink()
    return lines


def commands(heading: str) -> list[str]:
    return [line[2:] for text in examples(heading) for line in text.splitlines() if line.startswith("$ ")]


def test_one_host_and_hosts_with_ssh(site: Path) -> None:
    one, several = commands("One host, or hosts with ssh")
    assert ranks_of(one, site) == [f"rank {n} of 4 on localhost" for n in range(4)]
    assert ranks_of(several, site) == [f"rank {n} of 8 on server{n // 4 + 1}" for n in range(8)]


def test_hosts_with_containers(site: Path) -> None:
    command = commands("Containers")[0]
    assert ranks_of(command, site) == [f"rank {n} of 4 on server{n // 2 + 1}, in a container" for n in range(4)]


def test_scripts_of_batch_systems(site: Path) -> None:
    (site / "nodes").write_text("n1\nn2\n")
    (site / "pe_hosts").write_text("n1 1 all.q@n1 UNDEFINED\nn2 1 all.q@n2 UNDEFINED\n")
    variables = [
        {"PBS_NODEFILE": str(site / "nodes"), "PBS_O_WORKDIR": str(site), "PBS_JOBID": "7"},
        {"LSB_MCPU_HOSTS": "n1 1 n2 1", "LSB_JOBID": "7"},
        {"PE_HOSTFILE": str(site / "pe_hosts"), "JOB_ID": "7"},
    ]
    scripts = examples("PBS, LSF, Grid Engine")
    assert len(scripts) == len(variables)
    for script, env in zip(scripts, variables, strict=True):
        assert ranks_of(script, site, env) == [f"rank {n} of 2 on n{n + 1}" for n in range(2)]


SRUN = """#!/bin/sh
for node in n1 n2; do
  unshare --uts sh -c 'hostname "$0" && exec "$@"' "$node" "$@" &
done
wait
"""


def test_hosts_that_call_in(site: Path) -> None:
    if shutil.which("unshare") is None or os.geteuid() != 0:
        pytest.skip("needs root and util-linux's unshare: the script's port is its own, and so are its nodes' names")
    for name, text in (("srun", SRUN), ("hostname", '#!/bin/sh\n[ $# -eq 0 ] && exec echo 127.0.0.1\nexec /bin/hostname "$@"\n')):
        program(site / "bin" / name, text)
    (script,) = examples("Hosts that call in")
    in_a_network = "unshare --net sh -c 'ip link set lo up && eval \"$SCRIPT\"'"
    said = ranks_of(in_a_network, site, {"HOME": str(site), "SCRIPT": script, "SLURM_JOB_ID": "4127"})
    assert said == [f"rank {n} of 4 on n{n // 2 + 1}" for n in range(4)]
    assert not list(site.glob("token*"))


@pytest.mark.parametrize(
    ("heading", "starter"), [("Open MPI", "mpirun"), ("MPICH, and what has its mpiexec (hydra)", "mpiexec.hydra")]
)
def test_mpi_as_a_starter(site: Path, heading: str, starter: str) -> None:
    if shutil.which(starter) is None:
        pytest.skip(f"{starter} is not installed (Debian: openmpi-bin, mpich): its example is not run here")
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    env = {**root, "OMPI_MCA_rmaps_base_oversubscribe": "1", "HOME": str(site)}
    said = ranks_of(commands(heading)[0], site, env)
    assert [line.split(" on ")[0] for line in said] == [f"rank {n} of 4" for n in range(4)]


def test_the_cell_of_a_notebook(site: Path) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("the notebook's cell uses torch, which is not installed: it is not run here")
    job = run_to_end(["sh", "-c", 'printf %s "$1" | python -', "sh", examples("A notebook")[0]], cwd=site)
    assert job.code == 0, job.text
    assert "[(0, 2, 0.1), (1, 2, 0.1)]" in job.out
