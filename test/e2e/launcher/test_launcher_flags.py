"""Flags, variables and files with them, in jobs on two hosts: each does what it says, and --print-config says it, too."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from launcher_job import ADDS_UP, RunningJob, StartJob

from jobs import DEADLINE_S

# A small allreduce, and a large one to which rank 1 comes late: by default one goes flat, the other host by host.
PROGRAM = f"""
import json, os, sys, time
{ADDS_UP}
time.sleep(float(sys.argv[1]) if core.rank() == 1 else 0)
many = (ctypes.c_float * 50000)()
at = ctypes.addressof(many)
call = (core.OP_ALLREDUCE, "many", -1, ())
core.enqueue(call, (at, at, [50000], core.DTYPE_FLOAT32, -1), (core.REDUCE_SUM, 1.0, 1.0, 0), many).wait()
names = {{open(f"/proc/self/task/{{task}}/comm").read().strip(): int(task) for task in os.listdir("/proc/self/task")}}
print(json.dumps([value[0], sorted(os.sched_getaffinity(names["hvd-engine"])), dict(os.environ)]))
core.shutdown()
"""
TELLS_VARIABLES = "import json, os; print(json.dumps(dict(os.environ)))"
BACKEND = re.compile(r"op=allreduce backend=(\w+)")
DATED = re.compile(r"\[\d\]<stderr>:\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}: [DIW] ")
UNDATED = re.compile(r"\[\d\]<stderr>:\[[DIW] ")
ON_TWO_HOSTS = ("-np", "4", "-H", "localhost:2,far:2", "--log-level", "debug")


@pytest.fixture
def noting_ssh(fake_ssh: str, tmp_path: Path) -> Path:
    """The stand-in for ssh, which notes its words in `words` beside it."""
    path = tmp_path / "noting_ssh"
    path.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/words\nexec {fake_ssh} "$@"\n')
    path.chmod(0o755)
    return path


def told_by(job: RunningJob, ranks: int) -> list[list[object]]:
    assert job.wait() == 0, job
    return [json.loads(job.lines(f"[{rank}]<stdout>:")[-1]) for rank in range(ranks)]


def assert_shown(horovodrun: str, flags: Sequence[str], variables: dict[str, str], shown: set[str]) -> str:
    """--print-config with these flags has the values that ranks get; those of `shown` are among them. What it notes."""
    command = [horovodrun, "--print-config", *flags]
    listing = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    found = re.findall(r"^(\w+) +(.*)  \(.*; default .*\)$", listing.stdout, re.MULTILINE)
    assert shown <= {name for name, _ in found}, listing.stdout
    assert {name: variables.get(name) for name, _ in found} == dict(found)
    return listing.stderr


def test_files_and_flags_reach_the_ranks_of_both_hosts(
    start_job: StartJob, noting_ssh: Path, tmp_path: Path, horovodrun_path: str
) -> None:
    (tmp_path / "job.yaml").write_text(
        "params: {cache_capacity: 77, hierarchical_allreduce: false}\n"
        "stall_check: {warning_time_seconds: 1}\n"
        "logging: {level: debug, with_timestamp: false}\n"
        "library_options: {gloo_timeout_seconds: 45, thread_afinity: 3}\n"
    )
    (tmp_path / "variables").write_text("# of the job\nHVD_FILE=it's a  file\nHVD_BOTH=file\nHOROVOD_SHM=off\n")
    core = max(os.sched_getaffinity(0))
    files = (
        "--config-file", str(tmp_path / "job.yaml"), "--env-file", str(tmp_path / "variables"), "-x", "HVD_BOTH=flag",
        "--hierarchical-allreduce", "--no-stall-check", "--thread-affinity", f"{core},{core}",
    )  # fmt: skip
    hosts = ("-H", "localhost:2,far-1:2,far-2:2,gone:2", "--include", "localhost,far-[1-2]", "--exclude", "far-2")
    ssh = ("--ssh-program", str(noting_ssh), "--ssh-port", "2222", "--ssh-identity-file", "a key")
    job = start_job("-np", "4", *hosts, *ssh, *files, sys.executable, "-c", PROGRAM, "1.5")
    for rank, (total, cores, variables) in enumerate(told_by(job, 4)):
        assert isinstance(variables, dict)
        assert (total, cores) == (10.0, [core])
        assert variables["HOROVOD_HOSTNAME"] == ("localhost" if rank < 2 else "far-1")
        assert (variables["HVD_FILE"], variables["HVD_BOTH"]) == ("it's a  file", "flag")
        said = assert_shown(horovodrun_path, files, variables, {"HOROVOD_CACHE_CAPACITY", "HOROVOD_SHM"})
    typing_error = f"horovodrun: {tmp_path}/job.yaml:4: unknown key 'library_options.thread_afinity'; did you mean"
    assert typing_error in job.err
    assert said.startswith(typing_error)
    assert "Stalled" not in job.err
    assert set(BACKEND.findall(job.err)) == {"hierarchical"}
    assert UNDATED.search(job.err)
    assert not DATED.search(job.err)
    calls = (tmp_path / "words").read_text().splitlines()
    assert [call for call in calls if not call.startswith("-G") and " -p 2222 -i a key -- far-1 exec " not in call] == []
    assert len(calls) == 2


def test_an_allreduce_goes_the_way_that_flags_say(start_job: StartJob, fake_ssh: str, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("params: {hierarchical_allreduce: true, torus_allreduce: true}\n")
    program = ("--ssh-program", fake_ssh, sys.executable, "-c", PROGRAM, "0")
    hides = {"HOROVOD_LOG_HIDE_TIME": "1"}
    torus = ("--torus-allreduce", "--no-hierarchical-allreduce", "--log-with-timestamp")
    job = start_job(*ON_TWO_HOSTS, *torus, *program, env=hides)
    told_by(job, 4)
    assert set(BACKEND.findall(job.err)) == {"hierarchical"}
    assert DATED.search(job.err)
    assert not UNDATED.search(job.err)
    flat = ("--no-torus-allreduce", "--no-hierarchical-allreduce", "--config-file", str(tmp_path / "job.yaml"))
    job = start_job(*ON_TWO_HOSTS, *flat, "--log-hide-timestamp", *program)
    told_by(job, 4)
    assert set(BACKEND.findall(job.err)) == {"gloo"}
    assert UNDATED.search(job.err)
    assert not DATED.search(job.err)
    assert "--log-hide-timestamp is deprecated; use --log-without-timestamp" in job.err


def test_the_variables_of_an_elastic_job_are_shown(start_job: StartJob, horovodrun_path: str) -> None:
    flags = ("--min-np", "1", "--grace", "9", "-x", "HOROVOD_ELASTIC_TIMEOUT=7", "--port-range", "20000-20999")
    job = start_job("-np", "1", *flags, sys.executable, "-c", TELLS_VARIABLES)
    assert job.wait() == 0, job
    variables = json.loads(job.lines("[0]<stdout>:")[0])
    shown = {f"HOROVOD_ELASTIC{name}" for name in ("", "_GRACE", "_TIMEOUT")}
    assert assert_shown(horovodrun_path, flags, variables, shown) == ""
    assert variables["HOROVOD_ELASTIC_TIMEOUT"] == "7"
    # Where nobody can come the launcher waits as long as it was told.
    waits = ("-np", "1", "--host-discovery-script", "true", "-x", "HOROVOD_ELASTIC_TIMEOUT=1")
    job = start_job(*waits, "true")
    assert job.wait() == 1
    assert "the job needs at least 1 slot and has 0 after 1 s (--elastic-timeout)" in job.err


def test_the_ports_that_ranks_are_given_by_name_are_the_rendezvous_too(start_job: StartJob) -> None:
    job = start_job("-np", "1", "-x", "HOROVOD_PORT_RANGE=20000-29999", "sh", "-c", "echo $HOROVOD_GLOO_RENDEZVOUS_PORT")
    assert job.wait() == 0, job
    assert 20000 <= int(job.lines("[0]<stdout>:")[0]) <= 29999


def test_who_does_not_join_is_waited_for_as_long_as_the_flag_says(start_job: StartJob) -> None:
    program = f"import os\nif os.environ['HOROVOD_RANK'] == '1': os.execvp('sleep', ['sleep', '1000'])\n{ADDS_UP}"
    job = start_job("-np", "2", "--gloo-timeout-seconds", "1", sys.executable, "-c", program)
    assert job.wait() == 1
    assert "init() waited for other ranks for 1 s" in job.err
    assert "never joined: 1" in job.err
