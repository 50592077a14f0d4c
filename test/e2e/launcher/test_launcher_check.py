"""`horovodrun --check`, the doctor, and `--report`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launcher_job import StartJob, eventually

import horovod
from horovod import _facts
from jobs import DEADLINE_S, program


def test_the_doctor_says_of_each_host_what_is_there_and_what_helps(
    horovodrun_path: str, fake_ssh: str, tmp_path: Path
) -> None:
    # far-away is this machine behind a stand-in for ssh that does not know the other.
    ssh = program(
        tmp_path / "ssh",
        "#!/bin/sh\n"
        'case "$*" in *nowhere*) echo "ssh: Could not resolve hostname nowhere: Name or service not known" >&2; exit 255;; esac\n'
        f'exec {fake_ssh} "$@"\n',
    )
    hosts = "localhost:1,far-away:4096,nowhere:1"
    command = [horovodrun_path, "--check", "--json", "-H", hosts, "--ssh-program", ssh, sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stderr  # nowhere
    seen = json.loads(done.stdout)
    assert (seen["format"], seen["version"]) == (1, horovod.__version__)
    checks = {host["host"]: {check["check"]: check for check in host["checks"]} for host in seen["hosts"]}
    assert list(checks) == ["localhost", "far-away", "nowhere"]
    names = [
        "answer",
        "horovod",
        "python",
        "frameworks",
        "clock",
        "cores",
        "memory",
        "shared memory",
        "limits",
        "gpu",
        "ports",
    ]
    for name in ("localhost", "far-away"):
        assert list(checks[name]) == names
        for wanted in ("answer", "horovod", "python", "clock", "ports"):
            assert checks[name][wanted]["level"] == "OK", checks[name][wanted]
    assert checks["far-away"]["cores"]["level"] == "WARN"
    assert "for 4096 ranks" in checks["far-away"]["cores"]["found"]
    assert checks["far-away"]["cores"]["remedy"]
    assert list(checks["nowhere"]) == ["answer"]
    assert checks["nowhere"]["answer"]["level"] == "FAIL"
    assert "nowhere" in checks["nowhere"]["answer"]["found"]
    # Those that are well have called each other.
    pairs = {(pair["from"], pair["to"]): pair for pair in seen["routes"]["pairs"]}
    assert list(pairs) == [("localhost", "far-away"), ("far-away", "localhost")]
    for pair in pairs.values():
        assert pair["level"] == "OK", pair
        assert {one["outcome"] for one in pair["tries"]} == {"reached"}
    assert seen["hosts"][0]["facts"]["cores"] == len(os.sched_getaffinity(0))
    assert seen["hosts"][2]["facts"] is None

    # For people; and a Python without Horovod.
    bare = program(tmp_path / "python", f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    done = subprocess.run([horovodrun_path, "--check", bare], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stdout.startswith("host localhost\n  FAIL  answer ")
    assert "No module named" in done.stdout
    assert "-> install Horovod for the Python that is named, on that host\n1 host: 1 FAIL, 0 WARN\n" in done.stdout


def test_ctrl_c_ends_the_doctors_jobs_and_tells_what_is_known(
    start_job: StartJob, fake_ssh: str, tmp_path: Path
) -> None:
    hangs = '[ "$HOROVOD_HOSTNAME" = far-away ] && exec sleep 1000'
    ill = program(tmp_path / "python", f'#!/bin/sh\n{hangs}\nexec {sys.executable} "$@"\n')
    job = start_job("--check", "-H", "localhost:1,far-away:1", "--ssh-program", fake_ssh, ill)

    children = Path(f"/proc/{job.pid}/task/{job.pid}/children")  # those too that have ended, until the doctor knows it
    eventually(lambda: bool(job.named("sleep")), "the look at far-away has begun")
    assert any("--timeout 60 --kill-grace 5 " in command for command in job.processes().values())
    eventually(lambda: len(children.read_text().split()) == 1, "the look at localhost is over")
    assert any("-H far-away:1 " in command for command in job.processes().values())
    job.signal(signal.SIGINT)
    assert job.wait() == 130
    assert "host localhost\n  OK    answer" in job.out
    assert "host far-away\n  FAIL  answer         ended by SIGINT" in job.out
    job.wait_all_gone()


def test_ports_of_the_range_that_others_have_are_missed(horovodrun_path: str) -> None:
    """Also where there is one host: the rendezvous takes a port, and ranks the rest."""
    command = [horovodrun_path, "--check", "-H", "localhost:40", "--port-range", "20000-20031", sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done
    assert "  FAIL  ports          " in done.stdout
    assert " of 20000-20031 free for 40 ranks\n" in done.stdout
    assert "-> a wider --port-range" in done.stdout


def test_what_the_job_of_all_hosts_says_beyond_its_limit_is_an_error(horovodrun_path: str, tmp_path: Path) -> None:
    noise = f"yes {'x' * 1000} | head -c {65 << 20}"
    text = f'#!/bin/sh\ncase "$*" in *--routes*) {noise};; esac\nexec {sys.executable} "$@"\n'
    loud = program(tmp_path / "python", text)
    command = [horovodrun_path, "--check", "--json", "-H", "localhost:1", "--port-range", "20000-20031", loud]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 1, done.stderr
    seen = json.loads(done.stdout)
    assert seen["routes"]["error"].startswith(f"too much output: more than {64 << 20} bytes"), seen["routes"]
    assert "ports" not in {check["check"] for check in seen["hosts"][0]["checks"]}


def test_a_tool_that_hangs_and_its_children_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _facts._run(["sh", "-c", "echo out; echo err >&2; exit 3"]) == (3, "out\nerr\n")
    monkeypatch.setattr(_facts, "_TOOL_DEADLINE_S", 0.1)
    began = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        _facts._run(["sh", "-c", "sleep 1000 & wait"])
    assert time.monotonic() - began < 500


def test_what_the_doctor_does_not_do_is_refused(horovodrun_path: str) -> None:
    for arguments, says in (
        (["--json", "-np", "1", "true"], "--json is for --check"),
        (["--check", "python", "train.py"], "--check takes a Python and nothing more as its command, found 'train.py'"),
        (["--check", "true"], "'true' is not the name of one"),
        (["--check", "--host-discovery-script", "x"], "--check does not run --host-discovery-script"),
    ):
        done = subprocess.run([horovodrun_path, *arguments], capture_output=True, text=True, timeout=DEADLINE_S)
        assert (done.returncode, done.stdout) == (2, "")
        assert says in done.stderr


def test_the_report_is_that_of_the_python_beside(horovodrun_path: str) -> None:
    done = subprocess.run([horovodrun_path, "--report"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"horovod: {horovod.__version__}, ")


def test_nothing_of_the_current_directory_is_run(horovodrun_path: str, tmp_path: Path) -> None:
    for module in ("horovod", "random", "runpy", "platform", "subprocess"):
        (tmp_path / f"{module}.py").write_text("raise SystemExit('planted')\n")
    usual = os.environ.get("PYTHONPATH", "")
    for path in (usual, f":{usual}"):
        for arguments in (["--report"], ["--check", sys.executable]):
            done = subprocess.run(
                [horovodrun_path, *arguments],
                capture_output=True,
                text=True,
                timeout=60,
                cwd=tmp_path,
                check=False,
                env={**os.environ, "PYTHONPATH": path},
            )
            assert "planted" not in done.stdout + done.stderr, done
            assert horovod.__version__ in done.stdout, done


COMPLETIONS = {
    "bash": (
        'eval "$("$0" --completion bash)"\n'
        "COMP_WORDS=(horovodrun -np 2 --color a); COMP_CWORD=4; _horovodrun; echo ${COMPREPLY[@]}\n"
        "COMP_WORDS=(horovodrun -np 2 --check-b); COMP_CWORD=3; _horovodrun; echo ${COMPREPLY[@]}\n"
        "COMP_WORDS=(horovodrun -np 2 python --check-b); COMP_CWORD=4; _horovodrun; echo ${COMPREPLY[@]}\n"
    ),
    "fish": (
        "$argv[1] --completion fish | source\n"
        'complete -C "horovodrun -np 2 --color a" | string split -f1 \\t | string join " "\n'
        'complete -C "horovodrun -np 2 --check-b" | string split -f1 \\t\n'
        'echo (complete -C "horovodrun -np 2 python --check-b")\n'
    ),
}


@pytest.mark.parametrize("shell", COMPLETIONS)
def test_completions_know_flags_and_their_values_before_the_command_alone(horovodrun_path: str, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed: its completions are not run")
    done = subprocess.run(
        [shell, "-c", COMPLETIONS[shell], horovodrun_path], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.splitlines() == ["always auto" if shell == "fish" else "auto always", "--check-build", ""], (
        done.stderr
    )


@pytest.mark.parametrize("shell", ["zsh"])
def test_completions_are_right_to_the_shell(horovodrun_path: str, shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed: its completions are not looked at")
    script = subprocess.run(
        [horovodrun_path, "--completion", shell], capture_output=True, text=True, timeout=DEADLINE_S, check=True
    )
    (tmp_path / "script").write_text(script.stdout)
    subprocess.run([shell, "-n", str(tmp_path / "script")], check=True, timeout=DEADLINE_S)
