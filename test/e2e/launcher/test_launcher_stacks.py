"""`horovodrun --stacks JOB`: where the ranks of a running job stand, without an end to any of them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from launcher_job import StartJob, eventually

PYTHON = sys.executable
WAITS = """
import threading
import horovod._common.native
def waits_for_data():
    print("ready", flush=True)
    threading.Event().wait()
waits_for_data()
"""

# Who connects as another user: prints what it gets.
STRANGER = """
import socket, sys
with socket.socket(socket.AF_UNIX) as door:
    door.settimeout(20)
    door.connect("\\0hvd-job-" + sys.argv[1])
    print(repr(door.recv(100)))
"""


def is_stopped(pid: int) -> bool:
    status = (Path("/proc") / str(pid) / "status").read_text()
    return re.search(r"(?m)^State:\s+T", status) is not None


def test_the_stacks_of_a_running_job_are_for_its_owner_and_harm_nobody(start_job: StartJob, horovodrun_path: str) -> None:
    # Rank 0 is a shell with a Python program, rank 1 is one, and rank 2 is none and would die of the signal.
    script = '[ $HOROVOD_RANK = 2 ] && exec sleep 1000; [ $HOROVOD_RANK = 1 ] && exec "$0" -c "$1"; "$0" -c "$1"; exit 3'
    job = start_job("-np", "3", "sh", "-c", script, PYTHON, WAITS)
    job.wait_for("[0]<stdout>:ready")
    job.wait_for("[1]<stdout>:ready")
    before = job.processes()
    ask = [horovodrun_path, "--stacks", str(job.pid)]
    for _ in range(2):
        done = subprocess.run(ask, capture_output=True, text=True, timeout=30)
        assert (done.returncode, done.stderr) == (0, "")
        ranks = re.split(r"(?m)^rank (?=\d on host localhost: pid \d+ \()", done.stdout)[1:]
        assert [text[0] for text in ranks] == ["0", "1", "2"]
        for text in ranks[:2]:
            assert re.search(r"state S.*\nCurrent thread 0x.* \(most recent call first\):\n", text)
            assert 'File "<string>", line 6 in waits_for_data\n' in text
            assert "\f" not in text
        assert "(sleep), state S" in ranks[2]
        assert "no stacks: no Python program that has imported horovod runs there" in ranks[2]
    assert job.processes().keys() == before.keys()
    assert "Current thread" not in job.out + job.err

    # One that is stopped is said to be, and is asked again when it goes on.
    stopped = int(re.findall(r"rank 1 on host localhost: pid (\d+)", done.stdout)[0])
    os.kill(stopped, signal.SIGSTOP)
    eventually(lambda: is_stopped(stopped), "the rank is stopped")
    done = subprocess.run(ask, capture_output=True, text=True, timeout=30)
    assert re.search(r"rank 1 on host localhost: pid \d+ \(.*\), state T.*\nno stacks: it does not answer", done.stdout)
    os.kill(stopped, signal.SIGCONT)

    if os.geteuid() == 0:
        stranger = ["/usr/bin/python3", "-c", STRANGER, f"0-{job.pid}"]
        seen = subprocess.run(stranger, capture_output=True, text=True, user=65534, timeout=30)
        assert seen.stdout in ("b''\n", ""), seen  # closed at once
    job.signal(signal.SIGTERM)
    assert job.wait() == 143
    done = subprocess.run(ask, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert "--stacks: there is no process" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [(("--stacks", "1"), 1, "process 1 is no horovodrun with a job"), (("--stacks", "7", "true"), 2, "expected no command")],
)
def test_stacks_of_what_is_no_job(start_job: StartJob, arguments: tuple[str, ...], code: int, says: str) -> None:
    job = start_job(*arguments)
    assert job.wait() == code
    assert says in job.err
