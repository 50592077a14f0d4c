"""Agents that something else than ssh starts: --rsh, what the MPI operator has in its place, --container."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
from launcher_job import ADDS_UP, StartJob, eventually

from jobs import program

# As the MPI operator's script calls `kubectl exec`: the pod's name, then a command whose words a shell in the pod gets. A
# pod is a host of its own name here, which it tells in its prompt's place; it does not have the launcher's environment.
KUBEXEC = """#!/bin/sh
pod=$1
shift
echo "Defaulted container \\"main\\" out of: main, init" >&2
exec env -i HOME=/ PATH=/usr/local/bin:/usr/bin:/bin POD="$pod" sh -c "$*" {redirection}
"""

# Two ranks add up their numbers: the job is one.
RANK = ADDS_UP + """
import os
print(os.environ.get("POD"), os.environ["HOROVOD_HOSTNAME"], core.local_size(), value[0], os.environ["OF_THE_USER"])
print(os.readlink("/proc/self/ns/mnt"), os.readlink("/proc/self/ns/uts"))
core.shutdown()  # who ends without it is lost for those that still wait
"""


def mpi_job(tmp_path: Path, redirection: str = "") -> dict[str, str]:
    """What the MPI operator gives its launcher's pod."""
    (tmp_path / "hostfile").write_text("job-worker-0 slots=2\njob-worker-1 slots=1\n")
    return {
        "OMPI_MCA_orte_default_hostfile": str(tmp_path / "hostfile"),
        "OMPI_MCA_plm_rsh_agent": program(tmp_path / "kubexec.sh", KUBEXEC.format(redirection=redirection)),
    }


def test_the_launcher_of_an_mpi_job_finds_its_workers(start_job: StartJob, tmp_path: Path) -> None:
    env = {**mpi_job(tmp_path), "OF_THE_USER": "with blanks, and $(no) command"}
    job = start_job(sys.executable, "-c", RANK, env=env)
    assert job.wait() == 0, job
    hosts = {0: ("job-worker-0", 2), 1: ("job-worker-0", 2), 2: ("job-worker-1", 1)}
    for rank, (host, local_size) in hosts.items():
        assert job.lines(f"[{rank}]<stdout>:")[0] == f"{host} {host} {local_size} 6.0 {env['OF_THE_USER']}"
    assert "hosts from OMPI_MCA_orte_default_hostfile (Open MPI, the MPI operator): job-worker-0:2,job-worker-1:1" in job.err
    assert f"agents are started by {env['OMPI_MCA_plm_rsh_agent']} (OMPI_MCA_plm_rsh_agent)" in job.err


def test_the_login_of_who_has_typed_the_command_is_not_what_agents_watch(start_job: StartJob, tmp_path: Path) -> None:
    here = program(tmp_path / "here", '#!/bin/sh\nshift\nexec "$@"\n')
    rank = ("sh", "-c", 'echo "${SSH_CONNECTION-none} $(tr "\\0" "\\n" < /proc/$PPID/environ | grep -c SSH_CONNECTION)"')
    env = {"SSH_CONNECTION": "192.0.2.1 5 192.0.2.2 22"}
    for flags, seen in ((("--no-env",), "none 0"), ((), f"{env['SSH_CONNECTION']} 0")):
        job = start_job("-np", "1", "-H", "pod:1", "--rsh", here, *flags, *rank, env=env)
        assert job.wait() == 0, job
        assert job.lines("[0]<stdout>:") == [seen]


def test_a_script_that_passes_no_input_on_is_an_error(start_job: StartJob, tmp_path: Path) -> None:
    job = start_job("true", env=mpi_job(tmp_path, "< /dev/null"))
    assert job.wait() == 1
    assert "kubexec.sh exited with code 2 before the agent answered" in job.err
    assert "has to pass standard input and output on, without a terminal (kubectl exec -i)" in job.err
    job.wait_all_gone()


def test_nothing_is_left_behind_in_pods(start_job: StartJob, tmp_path: Path) -> None:
    job = start_job("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done", env=mpi_job(tmp_path))
    eventually(lambda: job.out.count(">:ready\n") == 3, "all ranks are ready")
    # What the launcher's signals do not reach is ended by the loss of its end of the pipes. Ranks have its marker, too.
    job.signal(signal.SIGKILL)
    assert job.wait() == 137
    job.wait_all_gone()


def test_agents_run_in_containers_and_share_them_with_their_ranks(
    start_job: StartJob, tmp_path: Path, horovodrun_path: str
) -> None:
    unshare = shutil.which("unshare")
    if unshare is None or os.geteuid() != 0:
        pytest.skip("needs root and util-linux's unshare: --container is tested with namespaces")
    kubexec = program(tmp_path / "rsh", KUBEXEC.format(redirection=""))
    container = f"{unshare} --mount --uts --ipc --pid --fork --kill-child --mount-proc"
    job = start_job(
        "-np", "3", "-H", "localhost:2,pod:1", "--rsh", kubexec, "--container", container, "--agent-path", horovodrun_path,
        sys.executable, "-c", RANK, env={"OF_THE_USER": "x"},
    )
    assert job.wait() == 0, job
    said = [job.lines(f"[{rank}]<stdout>:") for rank in range(3)]
    assert [lines[0] for lines in said] == ["None localhost 2 6.0 x"] * 2 + ["pod pod 1 6.0 x"]
    # One container for each host: the ranks of a host are together in theirs.
    own = " ".join(os.readlink(f"/proc/self/ns/{kind}") for kind in ("mnt", "uts"))
    spaces = [lines[1] for lines in said]
    assert spaces[0] == spaces[1]
    assert len({own, *spaces}) == 3
    job.wait_all_gone()
