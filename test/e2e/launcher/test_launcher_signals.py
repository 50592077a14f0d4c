"""Signals to the launcher, whatever becomes of its output."""

from __future__ import annotations

import array
import fcntl
import os
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from launcher_job import RunningJob, StartJob, eventually, make_token

from jobs import DEADLINE_S, assert_soon

PYTHON = sys.executable
FRAME_H = Path(__file__).resolve().parents[3] / "launcher/protocol/frame.h"
PROTOCOL = int(re.search(r"kAgentProtocolVersion = (\d+);", FRAME_H.read_text())[1])


def unread(fd: int) -> int:
    size = array.array("i", [0])
    fcntl.ioctl(fd, termios.FIONREAD, size)
    return size[0]


def wait_until_held(job: RunningJob, name: str, count: int) -> None:
    """Until the processes of that name wait for somebody to take their output: asleep, and no further than at 50 looks before."""
    looks: list[tuple[str, ...]] = []

    def held() -> bool:
        stats = tuple((Path("/proc") / str(pid) / "stat").read_text() for pid in job.named(name))
        looks.append(stats)
        still = len(looks) > 50 and len(set(looks[-50:])) == 1
        return still and len(stats) == count and all(") S " in stat for stat in stats)

    eventually(held, f"{count} x {name} wait for a reader\n{job}")


def held_job(start_job: StartJob, *arguments: str) -> tuple[RunningJob, int]:
    """A job whose ranks have printed more than anybody takes; and the end of the pipe that nobody reads."""
    read_end, write_end = os.pipe()
    job = start_job("-np", "2", *arguments, stdout=write_end)
    os.close(write_end)
    wait_until_held(job, "yes", 2)
    return job, read_end


def test_a_reader_that_does_not_read_does_not_hold_up_a_signal(start_job: StartJob) -> None:
    job, read_end = held_job(start_job, "yes")
    job.signal(signal.SIGTERM)
    # It would never end if it waited for the reader. 2 s are for the last output; a sanitizer takes 3 s for megabytes.
    assert job.wait() == 143
    job.wait_all_gone()
    os.close(read_end)


def test_signals_that_were_blocked_for_the_launcher_end_the_job(start_job: StartJob) -> None:
    blocked = {signal.SIGINT, signal.SIGTERM, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        jobs = [start_job("-np", "1", "sh", "-c", "echo runs; exec sleep 1000") for _ in range(2)]
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    for job, number in zip(jobs, (signal.SIGINT, signal.SIGTERM), strict=True):
        job.wait_for("runs")
        job.signal(number)
        assert job.wait() == 128 + number
        job.wait_all_gone()


def test_a_third_signal_leaves_at_once(start_job: StartJob) -> None:
    def seconds() -> float:
        job, read_end = held_job(start_job, "sh", "-c", "trap '' INT; yes")
        started = time.monotonic()
        job.signal(signal.SIGINT)
        job.wait_for("got SIGINT: terminating the ranks")
        job.signal(signal.SIGINT)
        job.wait_for("got SIGINT: killing the ranks")
        job.signal(signal.SIGINT)
        assert job.wait() == 130
        took = time.monotonic() - started
        job.wait_all_gone()
        os.close(read_end)
        return took

    assert_soon(seconds, 1.9)  # the last output would have 2 s


def test_output_that_nobody_took_does_not_outlive_the_users_patience(start_job: StartJob) -> None:
    # The job is over, and what is left waits for a reader as `cat file | less` does: until a signal.
    read_end, write_end = os.pipe()
    job = start_job("-np", "1", "head", "-c", "1000000", "/dev/zero", stdout=write_end)
    os.close(write_end)
    eventually(lambda: not job.named("hvd-agent") and unread(read_end) > 0, "the job is over")
    assert job.process.poll() is None
    job.signal(signal.SIGINT)
    assert job.wait() == 130
    os.close(read_end)


@pytest.mark.parametrize("closes_its_end", [True, False])
def test_an_agent_that_has_said_done_ends_when_its_launcher_is_gone(horovodrun_path: str, closes_its_end: bool) -> None:
    read_end, write_end = os.pipe()
    fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(write_end, False)
    os.write(write_end, b"x" * 4096)  # no room for its last word
    os.set_blocking(write_end, True)
    agent = subprocess.Popen([horovodrun_path, "--agent", "0" * 32], stdin=subprocess.PIPE, stdout=write_end)
    os.close(write_end)
    assert agent.stdin is not None
    try:
        agent.stdin.write(struct.pack("<IBBHIBc", 1, PROTOCOL, 3, 0, 0, 1, b"\n"))  # shutdown, at once
        agent.stdin.flush()
        agents = Path(f"/proc/{agent.pid}/task/{agent.pid}/children")
        looks: list[str] = []

        def said() -> bool:
            looks.append((Path("/proc") / agents.read_text().strip() / "stat").read_text() if agents.read_text() else "")
            return unread(agent.stdin.fileno()) == 0 and len(looks) > 10 and len(set(looks[-10:])) == 1 and ") S " in looks[-1]

        eventually(said, "the agent has read the frame and acted on it")
        if closes_its_end:
            os.close(read_end)
        agent.stdin.close()
        agent.wait(DEADLINE_S)
    finally:
        agent.kill()
        agent.wait()
        if not closes_its_end:
            os.close(read_end)


# Says which signals come, and when.
PATIENT = """
import signal, time
for name in ("INT", "TERM", "USR1", "USR2", "HUP"):
    signal.signal(getattr(signal, "SIG" + name), lambda n, _: print("got", signal.Signals(n).name, time.monotonic(), flush=True))
print("ready", flush=True)
while True:
    time.sleep(0.01)
"""


def test_the_users_words_reach_the_ranks_and_patience_is_his_choice(start_job: StartJob) -> None:
    def late() -> float:
        job = start_job("-np", "2", "--kill-grace", "1", PYTHON, "-c", PATIENT)
        eventually(lambda: job.out.count(":ready\n") == 2, "both ranks run")
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT):
            sent = time.monotonic()
            job.signal(number)
            eventually(lambda name=number.name: job.out.count(f"got {name}") == 2, f"both ranks have got {number.name}")  # type: ignore[misc]
        assert job.wait() == 130
        ended = time.monotonic()
        terminated = []
        for rank in range(2):
            words = [line.split() for line in job.lines(f"[{rank}]<stdout>:got ")]
            assert [word for word, _ in words] == ["SIGUSR1", "SIGUSR2", "SIGINT", "SIGTERM"]
            terminated.append(float(words[3][1]))
        assert "SIGTERM in 1 s, SIGKILL 1 s later" in job.err
        job.wait_all_gone()
        assert min(terminated) - sent >= 1
        assert ended - sent >= 2
        return max(max(terminated) - sent - 1, ended - min(terminated) - 1)

    assert_soon(late, 1.5)


def test_a_signal_for_the_program_does_not_hit_its_helpers(start_job: StartJob) -> None:
    script = "trap 'echo heard' USR1; sleep 1000 & echo ready; while :; do wait; kill -0 $! && echo alive; done"
    job = start_job("-np", "1", "sh", "-c", script)
    job.wait_for("ready")
    job.signal(signal.SIGUSR1)
    job.wait_for("alive")
    assert "heard" in job.out
    job.signal(signal.SIGTERM)
    assert job.wait() == 143


@pytest.mark.parametrize("waits_for_hosts", [False, True])
def test_sigint_ends_a_job_that_was_started_ignoring_it(
    horovodrun_path: str, tmp_path: Path, waits_for_hosts: bool
) -> None:
    """As a script starts what it puts into the background."""
    out = tmp_path / "out"
    token = make_token(tmp_path / "token")
    waits = f"--wait-for-hosts 1 --listen 127.0.0.1 --token-file {token}" if waits_for_hosts else ""
    word, times = ("waits for", 1) if waits_for_hosts else ("ready", 2)
    ranks = "echo ready; exec sleep 1000"
    program = f"{horovodrun_path} -np 2 {waits} sh -c '{ranks}' > {out} 2>&1 & echo $!; wait $!; echo code $?"
    with subprocess.Popen(["sh", "-c", program], stdout=subprocess.PIPE, text=True) as script:
        assert script.stdout is not None
        launcher = int(script.stdout.readline())
        try:
            eventually(lambda: out.exists() and out.read_text().count(word) >= times, "it runs, or waits")
            os.kill(launcher, signal.SIGINT)
            assert script.communicate(timeout=DEADLINE_S)[0] == "code 130\n", out.read_text()
        finally:
            if script.poll() is None:  # and so its child has its number still
                os.kill(launcher, signal.SIGKILL)


def test_what_is_ignored_at_the_start_stays_ignored(horovodrun_path: str, tmp_path: Path) -> None:
    """`nohup horovodrun ... &`, and the terminal closes."""
    out = tmp_path / "out"
    go = tmp_path / "go"
    ranks = f"grep SigIgn /proc/self/status; until [ -e {go} ]; do sleep 0.02; done; echo finished"
    pid, terminal = os.forkpty()
    if pid == 0:
        command = f"trap '' USR1; exec nohup {horovodrun_path} -np 2 sh -c '{ranks}' > {out} 2>&1"
        os.execvp("sh", ["sh", "-c", command])
    try:
        eventually(lambda: out.exists() and out.read_text().count("SigIgn") == 2, "both ranks run")
        masks = [int(line.split()[-1], 16) for line in out.read_text().splitlines() if "SigIgn" in line]
        assert [mask >> (signal.SIGHUP - 1) & 1 for mask in masks] == [1, 1]
        assert [mask >> (signal.SIGUSR1 - 1) & 1 for mask in masks] == [1, 1]
        assert [mask >> (signal.SIGINT - 1) & 1 for mask in masks] == [0, 0]
        os.close(terminal)  # SIGHUP to everything in front
        os.kill(pid, signal.SIGUSR1)
        go.touch()
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert out.read_text().count("finished") == 2
    finally:
        go.touch()
