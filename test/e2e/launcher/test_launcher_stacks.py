"""`horovodrun --stacks JOB`: where the ranks of a running job stand, without an end to any of them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from launcher_job import StartJob, ended_by_timeout, eventually

from jobs import DEADLINE_S

PYTHON = sys.executable
WAITS = """
import threading
import horovod._common.native
def waits_for_data():
    print("ready", flush=True)
    threading.Event().wait()
waits_for_data()
"""

# Native code that keeps the interpreter's lock: no other thread of Python's runs.
STUCK = """
import ctypes
import horovod._common.native
print("ready", flush=True)
while True:
    ctypes.PyDLL(None).pause()
"""
PAUSE = r"libc\.so\.6\(.*pause"

# Another thread loads a library that takes its time, and has the loader's lock meanwhile.
LOADS = """
import ctypes, sys, threading
import horovod._common.native
threading.Thread(target=ctypes.CDLL, args=sys.argv[1:], daemon=True).start()
threading.Event().wait()
"""
SLOW_LIBRARY = """
#include <unistd.h>
__attribute__((constructor)) static void load(void) {
  write(1, "loads\\n", 6);
  for (;;) pause();
}
"""

# Who asks as the user that is named: prints what it gets.
ASKER = """
import os, socket, sys
with socket.socket(socket.AF_UNIX) as door:
    os.setresuid(*3 * [int(sys.argv[2])])
    door.settimeout(20)
    door.connect("\\0hvd-job-" + sys.argv[1])
    try:
        door.sendall(b"status\\n")
        print(door.recv(100))
    except (ConnectionResetError, BrokenPipeError):
        print(b"")
"""

# Python does not know of handlers that native code has set.
HANDLERS = """
import ctypes, os, signal, sys
number = signal.SIGRTMAX - 3
libc = ctypes.CDLL(None)
if sys.argv[1] == "taken":
    libc.signal(number, ctypes.cast(libc.abort, ctypes.c_void_p))
import horovod._common.native
action = (ctypes.c_uint64 * 19)()  # sa_handler, sa_mask, sa_flags, sa_restorer
assert libc.sigaction(number, None, action) == 0
links = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{fd}")]
print(any("hvd-stacks" in link for link in links))
print(action[0] == ctypes.cast(libc.abort, ctypes.c_void_p).value, bool(action[17] & 0x10000000))
"""

# Takes the name that the job's socket would have.
NAME_TAKER = """
import os, socket, sys
door = socket.socket(socket.AF_UNIX)
door.bind(f"\\0hvd-job-{os.geteuid()}-{os.getpid()}")
door.set_inheritable(True)
os.execv(sys.argv[1], sys.argv[1:])
"""


def is_stopped(pid: int) -> bool:
    status = (Path("/proc") / str(pid) / "status").read_text()
    return re.search(r"(?m)^State:\s+T", status) is not None


def run_tool(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)


def by_rank(answer: str) -> list[str]:
    return re.split(r"(?m)^rank (?=\d on host localhost: pid \d+ \()", answer)[1:]


def all_wait(answer: subprocess.CompletedProcess[str]) -> bool:
    """What is right at any time is asserted; true when all ranks have come to their wait."""
    assert (answer.returncode, answer.stderr) == (0, "")
    ranks = by_rank(answer.stdout)
    assert [text[0] for text in ranks] == ["0", "1", "2"]
    for text in ranks[:2]:
        assert "\f" not in text
    assert "no stacks: no Python program that has imported horovod runs there" in ranks[2]
    stands = r'state S.*\nCurrent thread 0x.* \(most recent call first\):\n(.*\n)*  File "<string>", line 6 in waits_for_data\n'
    return all(re.search(stands, text) for text in ranks[:2]) and "(sleep), state S" in ranks[2]


def test_the_stacks_of_a_running_job_are_for_its_owner_and_harm_nobody(
    start_job: StartJob, horovodrun_path: str
) -> None:
    # Rank 0 is a shell with a Python program, rank 1 is one, and rank 2 is none and would die of the signal.
    script = (
        '[ $HOROVOD_RANK = 2 ] && exec sleep 1000; [ $HOROVOD_RANK = 1 ] && exec "$0" -c "$1"; "$0" -c "$1"; exit 3'
    )
    job = start_job("-np", "3", "sh", "-c", script, PYTHON, WAITS)
    job.wait_for("[0]<stdout>:ready")
    job.wait_for("[1]<stdout>:ready")
    eventually(lambda: bool(job.named("sleep")), "rank 2 is past its exec, in which it would not be counted")
    before = job.processes()
    ask = [horovodrun_path, "--stacks", str(job.pid)]
    for _ in range(2):
        # `ready` comes before the wait, and who has answered goes on a moment later.
        eventually(lambda: all_wait(run_tool(ask)), "ranks 0 and 1 wait for data, the third sleeps")
    assert job.processes().keys() == before.keys()
    assert "Current thread" not in job.out + job.err

    # One that is stopped is said to be, and is asked again when it goes on.
    stopped = int(re.findall(r"rank 1 on host localhost: pid (\d+)", run_tool(ask).stdout)[0])
    os.kill(stopped, signal.SIGSTOP)
    eventually(lambda: is_stopped(stopped), "the rank is stopped")
    done = run_tool(ask)
    assert re.search(r"rank 1 on host localhost: pid \d+ \(.*\), state T.*\nno stacks: it does not answer", done.stdout)
    os.kill(stopped, signal.SIGCONT)

    def goes_on() -> bool:
        text = by_rank(run_tool(ask).stdout)[1]
        assert text.count("(most recent call first)") <= 1  # though it has been asked twice
        assert "\f" not in text
        return "(most recent call first)" in text

    eventually(goes_on, "the rank goes on")

    # Root and the owner are answered, another user is not.
    asker = [sys.executable, "-c", ASKER, f"{os.geteuid()}-{job.pid}"]
    done = run_tool([*asker, str(os.geteuid())])
    assert (done.returncode, done.stdout[:4], done.stderr) == (0, "b'0{", ""), done
    if os.geteuid() == 0:
        done = run_tool([*asker, "65534"])
        assert (done.returncode, done.stdout, done.stderr) == (0, "b''\n", ""), done
    job.signal(signal.SIGTERM)
    assert job.wait() == 143
    done = run_tool(ask)
    assert done.returncode == 1
    assert "--stacks: there is no process" in done.stderr
    if os.geteuid() != 0:
        pytest.skip("only root can ask as another user: that this is refused is not tested")


def test_a_rank_that_is_stuck_in_native_code_says_where_and_goes_on(start_job: StartJob, horovodrun_path: str) -> None:
    job = start_job("-np", "1", PYTHON, "-c", STUCK)
    job.wait_for("[0]<stdout>:ready")
    before = job.processes()

    def stands_there() -> bool:
        done = run_tool([horovodrun_path, "--stacks", str(job.pid)])
        assert (done.returncode, done.stderr) == (0, "")
        python, title, native = done.stdout.partition(
            "Native stack of the thread that has the signal, innermost call first:\n"
        )
        assert title, done.stdout
        assert 'File "<string>", line ' in python
        return re.search(PAUSE, native) is not None

    for _ in range(3):
        eventually(stands_there, "the rank has come to its native call")
    assert job.processes().keys() == before.keys()  # the copies that walked its stack are gone
    assert job.out + job.err == "[0]<stdout>:ready\n"
    job.signal(signal.SIGTERM)
    assert job.wait() == 143


def test_a_rank_whose_locks_are_held_is_not_harmed(start_job: StartJob, horovodrun_path: str, tmp_path: Path) -> None:
    (tmp_path / "slow.c").write_text(SLOW_LIBRARY)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "slow.so", tmp_path / "slow.c"], check=True)
    job = start_job("-np", "1", PYTHON, "-c", LOADS, str(tmp_path / "slow.so"))
    job.wait_for("[0]<stdout>:loads")
    before = job.processes()
    for _ in range(2):
        done = run_tool([horovodrun_path, "--stacks", str(job.pid)])
        assert (done.returncode, done.stderr) == (0, "")
        assert "The native stack ends here: its walk waited for a lock\n" in done.stdout
    assert job.processes().keys() == before.keys()
    job.signal(signal.SIGTERM)
    assert job.wait() == 143


def test_a_job_whose_time_is_up_says_where_its_native_code_stands(start_job: StartJob) -> None:
    says = lambda job: re.search(r"\[0\]<stderr>:.*" + PAUSE, job.err) is not None  # noqa: E731
    ended_by_timeout(start_job, says, "-np", "1", PYTHON, "-c", STUCK)


def test_a_job_that_nobody_reads_says_so(start_job: StartJob, horovodrun_path: str) -> None:
    reader, writer = os.pipe()
    job = start_job("-np", "1", "sh", "-c", "exec yes", stdout=writer)
    os.close(writer)
    eventually(
        lambda: '"output_waits": true' in run_tool([horovodrun_path, "--status", str(job.pid)]).stdout,
        "nobody reads the output",
    )
    done = run_tool([horovodrun_path, "--stacks", str(job.pid)])
    assert (done.returncode, done.stderr) == (1, "")
    assert "nobody reads the output of horovodrun" in done.stdout
    os.close(reader)
    assert job.wait() == 141


def test_a_job_whose_name_is_taken_runs_and_says_so(horovodrun_path: str) -> None:
    done = run_tool([sys.executable, "-c", NAME_TAKER, horovodrun_path, "-np", "1", "true"])
    assert done.returncode == 0
    assert done.stderr == "horovodrun: --stacks and --status cannot ask this job: its socket: Address already in use\n"


@pytest.mark.parametrize(("before", "is_installed"), [("free", True), ("taken", False)])
def test_the_programs_own_handler_is_left_alone_and_system_calls_go_on(before: str, is_installed: bool) -> None:
    environment = {**os.environ, "HOROVOD_AGENT": "hvd-agent-of-no-job"}
    done = subprocess.run([PYTHON, "-c", HANDLERS, before], capture_output=True, text=True, timeout=60, env=environment)
    assert done.stdout == f"{is_installed}\n{not is_installed} True\n", done.stderr  # SA_RESTART: signal(2) sets it too


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--stacks", "1"), 1, "process 1 is no horovodrun with a job"),
        (("--stacks", "7", "true"), 2, "expected no command"),
    ],
)
def test_stacks_of_what_is_no_job(start_job: StartJob, arguments: tuple[str, ...], code: int, says: str) -> None:
    job = start_job(*arguments)
    assert job.wait() == code
    assert says in job.err
