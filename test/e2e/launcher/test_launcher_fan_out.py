"""--fan-out: hosts that start the agents of others. The stand-in for ssh becomes what runs at its far end, and that knows on
which host it is. With real sshd on hosts of their own: test/e2e/hosts/test_hosts_fan_out.py."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from launcher_job import RunningJob, StartJob, eventually

from jobs import assert_soon, program

# Addresses for documentation: nobody's, and no name server is asked for them.
HOSTS = [f"198.51.100.{number}" for number in range(1, 8)]
NAMED = ",".join(f"{host}:1" for host in HOSTS)

# Where it goes on from a host, it does what `onward` says.
SSH = """#!{python}
import os, subprocess, sys
if "-G" in sys.argv:
    sys.exit(1)
host, command = sys.argv[sys.argv.index("--") + 1 :]
here = os.environ.get("ON_HOST", "")
with open("{folder}/logins", "a") as log:
    log.write(f"{{here}}>{{host}}\\n")
if here:
    {onward}
print("Welcome to the machine")
sys.stdout.flush()
env = {{"HOME": "{folder}", "USER": "x", "PATH": "/usr/local/bin:/usr/bin:/bin", "ON_HOST": host}}
if os.environ.get("{marker}"):
    env["{marker}"] = os.environ["{marker}"]
os.execvpe("sh", ["sh", "-c", command], env)
"""


def stand_in(folder: Path, onward: str = "pass") -> str:
    text = SSH.format(python=sys.executable, folder=folder, onward=onward, marker="HVD_E2E_MARKER")
    return program(folder / "ssh", text)


def logins(folder: Path) -> Counter[bool]:
    """How many were made from here (False), and onward (True)."""
    return Counter(line[0] != ">" for line in (folder / "logins").read_text().splitlines())


def start(
    start_job: StartJob, ssh: str, *arguments: str, hosts: str = NAMED, fan_out: str = "2", start_timeout: int = 240
) -> RunningJob:
    """Hosts of others have a fourth of the time to start; then they are started from here."""
    tree = ("-H", hosts, "--ssh-program", ssh, "--fan-out", fan_out, "--start-timeout", str(start_timeout))
    return start_job("-np", str(len(hosts.split(","))), *tree, *arguments)


def test_two_hosts_start_the_agents_of_five_others(start_job: StartJob, tmp_path: Path) -> None:
    script = "echo $HOROVOD_RANK $HOROVOD_HOSTNAME $ON_HOST; seq 20000; exit $((HOROVOD_RANK == 8 ? 9 : 0))"
    hosts = f"localhost:1,{NAMED}"
    job = start(start_job, stand_in(tmp_path), "sh", "-c", script, hosts=hosts)
    assert job.wait() == 0, job
    for rank, host in enumerate(["localhost", *HOSTS]):
        lines = job.lines(f"[{rank}]<stdout>:")
        assert lines[0] == f"{rank} {host} {host if rank else ''}".rstrip()
        assert lines[1:] == [str(number) for number in range(1, 20001)]
    assert job.err == ""
    assert logins(tmp_path) == {False: 2, True: 5}
    job.wait_all_gone()


def test_the_exit_code_of_a_rank_below_comes_back(start_job: StartJob, tmp_path: Path) -> None:
    job = start(start_job, stand_in(tmp_path), "sh", "-c", "[ $HOROVOD_RANK = 6 ] && exit 9; sleep 1000")
    assert job.wait() == 9, job
    assert f"rank 6 on host {HOSTS[6]} (pid " in job.err
    job.wait_all_gone()


def test_signals_reach_ranks_below(start_job: StartJob, tmp_path: Path) -> None:
    script = "trap 'echo got INT; exit 0' INT; echo ready; while :; do sleep 0.05; done"
    job = start(start_job, stand_in(tmp_path), "sh", "-c", script)
    eventually(lambda: job.out.count(">:ready\n") == 7, "all ranks are ready")
    job.signal(signal.SIGINT)
    assert job.wait() == 130
    assert job.out.count(">:got INT\n") == 7
    job.wait_all_gone()


def test_ranks_that_ignore_the_end_are_killed_on_all_hosts(start_job: StartJob, tmp_path: Path) -> None:
    job = start(start_job, stand_in(tmp_path), "--kill-grace", "1", "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done")
    eventually(lambda: job.out.count(">:ready\n") == 7, "all ranks are ready")
    job.signal(signal.SIGTERM)
    assert job.wait() == 143
    assert "does not end" not in job.err
    job.wait_all_gone()


@pytest.mark.parametrize("victim", ["launcher", "agent", pytest.param("guard", marks=pytest.mark.slow)])
def test_nothing_outlives_who_started_it(start_job: StartJob, tmp_path: Path, victim: str) -> None:
    family = "trap '' TERM; setsid sleep 1002 & echo ready $PPID; while :; do sleep 1; done"
    job = start(start_job, stand_in(tmp_path), "sh", "-c", family)
    eventually(lambda: job.out.count(">:ready ") == 7, "all ranks are ready")
    if victim == "launcher":
        job.signal(signal.SIGKILL)
        assert job.wait() == 137
    else:
        agent = int(job.lines("[0]<stdout>:ready ")[0])  # of an inner host
        guard = int(Path(f"/proc/{agent}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(agent if victim == "agent" else guard, signal.SIGKILL)
        assert job.wait() == 1, job
        assert job.err.startswith(f"horovodrun: lost host {HOSTS[0]}: "), job
        assert job.err.count("lost host") == 1, job
    job.wait_all_gone()


def test_an_agent_that_has_cleaned_up_waits_for_those_below(start_job: StartJob, tmp_path: Path) -> None:
    left = "trap 'sleep 0.5; echo bye; exit' TERM; echo ready; while :; do sleep 0.05; done"
    script = f'[ $HOROVOD_RANK = 1 ] || exec sleep 1000; setsid sh -c "{left}" & while :; do sleep 0.05; [ -e end ] && exit 3; done'
    hosts = ",".join(f"{host}:1" for host in HOSTS[:3])
    end = tmp_path / "end"

    def seconds() -> float:
        end.unlink(missing_ok=True)
        job = start(start_job, stand_in(tmp_path), "sh", "-c", script, hosts=hosts, fan_out="1")
        job.wait_for(">:ready\n")
        end.touch()
        assert job.wait() == 3, job
        job.wait_all_gone()
        return 0.5 if job.lines("[1]<stdout>:") == ["ready", "bye"] else math.inf

    assert_soon(seconds, 2.0)  # from TERM to KILL


def test_a_reader_that_pauses_holds_ranks_below(start_job: StartJob, tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    job = start_job(
        "-np", "3", "-H", ",".join(HOSTS[:3]), "--ssh-program", stand_in(tmp_path), "--fan-out", "1",
        "sh", "-c", f"yes {'z' * 1023} | head -c 41943040", stdout=write_end,
    )
    os.close(write_end)
    seen = [-2, -1]

    def stalled() -> bool:
        # What agents have read. Half a second without progress: 50 looks of `eventually`.
        seen.append(sum(int(Path(f"/proc/{pid}/io").read_text().split()[1]) for pid in job.named("hvd-agent")))
        return len(seen) > 52 and len(set(seen[-50:])) == 1 and seen[-1] > 2**22

    eventually(stalled, "the agents wait for the reader")
    print(f"read by agents: {seen[-1] / 2**20:.1f} MiB")
    assert len(job.named("hvd-agent")) == 3
    # Of 120 MiB. Launcher and agents hold 4 MiB each, and what passes two agents counts twice: it is 20 MiB.
    assert seen[-1] < 48 * 2**20
    total = 0
    with os.fdopen(read_end, "rb") as reader:
        while chunk := reader.read(1 << 20):
            total += len(chunk)
    assert job.wait() == 0
    assert total == 3 * 40960 * (1024 + len("[0]<stdout>:"))


def test_what_is_typed_reaches_ranks_below(horovodrun_path: str, tmp_path: Path) -> None:
    text = "".join(f"line {number}\n" for number in range(50000))  # more than is sent ahead
    tree = ["-H", ",".join(HOSTS[:3]), "--ssh-program", stand_in(tmp_path), "--fan-out", "1"]
    command = [horovodrun_path, "-np", "3", *tree, "--stdin", "all", "cksum"]
    ran = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
    alone = subprocess.run(["cksum"], input=text, capture_output=True, text=True, check=True).stdout
    assert sorted(ran.stdout.splitlines()) == [f"[{rank}]<stdout>:{alone.strip()}" for rank in range(3)], ran


FALLBACK = "horovodrun: --fan-out 2: hosts that others were to start are started from here instead: "


@pytest.mark.parametrize(
    ("onward", "why"),
    [
        ("os.write(2, b'Permission denied (publickey).'); os._exit(255)", "ssh refused the login"),
        ("os._exit(127)", "there is no "),
        ("os.execlp('sleep', 'sleep', '1003')", "they have not answered there"),
    ],
    ids=["no key", "no horovodrun", "silence"],
)
def test_what_does_not_work_from_another_host_is_started_from_here(
    start_job: StartJob, tmp_path: Path, onward: str, why: str
) -> None:
    job = start(start_job, stand_in(tmp_path, onward), "echo", "ran", start_timeout=20 if "sleep" in onward else 240)
    assert job.wait() == 0, job
    assert job.out.count(">:ran\n") == 7
    assert job.err.startswith(FALLBACK), job
    assert job.err.count("--fan-out") == 1
    assert why in job.err
    assert logins(tmp_path)[False] == 7
    job.wait_all_gone()


def test_a_host_that_nobody_can_start_is_named(start_job: StartJob, tmp_path: Path) -> None:
    refuse = program(
        tmp_path / "refuse",
        f'#!/bin/sh\ncase "$*" in *"-- {HOSTS[4]} "*) echo "ssh: connect to host {HOSTS[4]} port 22: Connection refused" >&2; exit 255;; esac\n'
        f'exec {stand_in(tmp_path)} "$@"\n',
    )
    job = start(start_job, refuse, "echo", "ran")
    assert job.wait() == 1, job
    assert job.out == ""
    assert f"horovodrun: host {HOSTS[4]}: the connection was refused" in job.err
    job.wait_all_gone()


# Shells' scripts: five hundred Pythons would be most of the time.
IN_A_TREE = ('while [ "$1" != "--" ]; do shift || exit 255; done\nexec sh -c "$3"', "--fan-out", "22", "--ssh-program")
ALL_FROM_HERE = ('shift\nexec "$@"', "--rsh")


@pytest.mark.slow
@pytest.mark.parametrize("how", [IN_A_TREE, ALL_FROM_HERE], ids=["in a tree", "all from here"])
def test_five_hundred_hosts_start_and_leave_nothing(start_job: StartJob, tmp_path: Path, how: tuple[str, ...]) -> None:
    starter = program(tmp_path / "starter", f"#!/bin/sh\n{how[0]}\n")
    hosts = ",".join(f"{network}.{host}" for network in ("198.51.100", "203.0.113") for host in range(1, 251))
    begin = time.monotonic()
    job = start_job("-np", "500", "-H", hosts, *how[1:], starter, "--start-timeout", "120", "true")
    assert job.wait() == 0, job
    print(f"500 hosts in {time.monotonic() - begin:.1f} s, with a load of {os.getloadavg()[0]:.1f}")
    assert job.err == ""
    job.wait_all_gone()
