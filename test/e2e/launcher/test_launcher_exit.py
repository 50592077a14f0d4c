"""How a job ends: exit codes, messages, and the order in which survivors are ended."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launcher_job import StartJob, ended_by_timeout

from jobs import assert_soon, program

PYTHON = sys.executable

# Notes when SIGTERM came, and goes on.
STUBBORN = """
import os, signal, sys, time
rank, start = int(os.environ["HOROVOD_RANK"]), time.monotonic()
signal.signal(signal.SIGTERM, lambda *_: print("TERM", time.monotonic(), flush=True))
print("ready", flush=True)
if rank == 1:
    while not os.path.exists(sys.argv[1]): time.sleep(0.01)
    print("failing", time.monotonic(), flush=True)
    print("the reason", file=sys.stderr, flush=True)
    os._exit(7)
while True:
    time.sleep(0.01)
"""


def test_success_is_zero_and_silent(start_job: StartJob) -> None:
    job = start_job("-np", "2", "true")
    assert job.wait() == 0
    assert job.out == ""
    assert job.err == ""


def test_the_exit_code_is_the_first_failing_ranks(start_job: StartJob) -> None:
    job = start_job("-np", "3", "sh", "-c", "[ $HOROVOD_RANK = 1 ] && exit 42; exec sleep 1000")
    assert job.wait() == 42
    assert "rank 1 on host localhost (pid " in job.err
    assert "exited with code 42" in job.err
    assert "Process name: 1\nExit code: 42\n" in job.err
    job.wait_all_gone()


def test_a_signal_is_128_plus_its_number(start_job: StartJob) -> None:
    job = start_job("-np", "2", "sh", "-c", "[ $HOROVOD_RANK = 0 ] && kill -SEGV $$; exec sleep 1000")
    assert job.wait() == 128 + signal.SIGSEGV
    assert "was killed by signal 11 (SIGSEGV)" in job.err
    assert "Exit code: 139" in job.err


def test_survivors_get_a_second_then_term_then_kill(start_job: StartJob, tmp_path: Path) -> None:
    def late() -> float:
        go = tmp_path / "go"
        go.unlink(missing_ok=True)
        job = start_job("-np", "2", PYTHON, "-c", STUBBORN, str(go))
        job.wait_for("[0]<stdout>:ready")
        go.touch()
        assert job.wait() == 7
        ended = time.monotonic()
        failed = float(job.lines("[1]<stdout>:failing ")[0])
        heard = job.lines("[0]<stdout>:TERM ")
        assert "its last lines on stderr stand above, behind [1]<stderr>:" in job.err
        assert job.err.count("the reason") == 1
        job.wait_all_gone()
        assert ended - failed >= 2.95
        if not heard:
            return math.inf  # it was not its turn in the two seconds between TERM and KILL
        terminated = float(heard[0])
        assert terminated - failed >= 0.95
        return max(terminated - failed - 1, ended - terminated - 2)

    assert_soon(late, 1.0)


def test_survivors_can_print_and_end_by_themselves(start_job: StartJob, tmp_path: Path) -> None:
    # Rank 0 ends when the agent has seen the end of the other.
    script = (
        "if [ $HOROVOD_RANK = 1 ]; then echo $$ > new; mv new pid; until [ -e ready ]; do sleep 0.01; done; exit 5; fi;"
        " until [ -e pid ]; do sleep 0.01; done; touch ready;"
        " while kill -0 $(cat pid) 2>/dev/null; do sleep 0.01; done; echo raised; exit 9"
    )

    def seconds() -> float:
        for left in ("pid", "ready"):
            (tmp_path / left).unlink(missing_ok=True)
        job = start_job("-np", "2", "sh", "-c", script)
        assert job.wait() == 5
        if "After that, rank 0 exited with code 9" not in job.err:
            return math.inf  # it was not its turn in the second that it has
        assert job.lines("[0]<stdout>:") == ["raised"]
        return 0.0

    assert_soon(seconds, 1.0)


def test_ranks_that_still_run_when_another_ends_well_are_left_to_finish(start_job: StartJob) -> None:
    job = start_job("-np", "2", "sh", "-c", "[ $HOROVOD_RANK = 0 ] && exit 0; sleep 2; echo finished")
    assert job.wait() == 0
    assert job.lines("[1]<stdout>:") == ["finished"]


def test_a_command_that_is_not_there(start_job: StartJob) -> None:
    job = start_job("-np", "2", "no-such-command", "x")
    assert job.wait() == 127
    assert job.err == "horovodrun: command not found: no-such-command on host localhost\n"


def test_a_command_that_cannot_be_executed(start_job: StartJob, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("x")
    job = start_job("-np", "1", str(tmp_path / "data"))
    assert job.wait() == 126
    assert f"cannot execute {tmp_path}/data: Permission denied on host localhost" in job.err


def test_more_ranks_than_slots(start_job: StartJob) -> None:
    job = start_job("-np", "3", "-H", "localhost:2", "true")
    assert job.wait() == 1
    assert "3 slots" in job.err
    assert "localhost:2" in job.err


def test_an_interface_that_is_not_there(start_job: StartJob) -> None:
    job = start_job("-np", "1", "--network-interfaces", "no-such-nic0", "true")
    assert job.wait() == 1
    assert "--network-interfaces: this machine has no interface 'no-such-nic0'" in job.err


def test_what_a_rank_leaves_behind_is_ended(start_job: StartJob) -> None:
    # It holds the rank's stdout, ignores SIGTERM, and has a session of its own.
    script = "setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' & echo started"

    def seconds() -> float:
        started = time.monotonic()
        job = start_job("-np", "1", "sh", "-c", script)
        assert job.wait() == 0
        took = time.monotonic() - started
        assert job.lines("[0]<stdout>:") == ["started"]
        job.wait_all_gone()
        return took

    assert_soon(seconds, 10)


def test_what_a_rank_leaves_behind_may_tidy_up(start_job: StartJob, tmp_path: Path) -> None:
    ready, tidy = tmp_path / "ready", tmp_path / "tidy"
    left = f"trap ': > {tidy}; exit' TERM; echo > {ready}; sleep 1000 & wait"
    script = f'mkfifo {ready}; setsid sh -c "{left}" & read line < {ready}'
    assert start_job("-np", "1", "sh", "-c", script).wait() == 0
    assert tidy.exists()


def test_a_helper_that_ends_soon_after_its_rank_is_left_in_peace(start_job: StartJob, tmp_path: Path) -> None:
    hit, done = tmp_path / "hit", tmp_path / "done"
    script = f"sh -c 'trap \"touch {hit}\" TERM; sleep 0.4; echo tidy > {done}' >/dev/null 2>&1 & exit 0"

    def seconds() -> float:
        hit.unlink(missing_ok=True)
        job = start_job("-np", "1", "sh", "-c", script)
        assert job.wait() == 0
        assert done.read_text() == "tidy\n"
        done.unlink()
        return math.inf if hit.exists() else 0.4  # a second has passed, which happens on a busy machine

    assert_soon(seconds, 1.0)


def test_an_agent_that_never_answers_meets_the_start_timeout(start_job: StartJob, tmp_path: Path) -> None:
    silent = program(tmp_path / "silent_ssh", "#!/bin/sh\necho 'still trying' >&2\nexec sleep 1000\n")
    hosts = ("--ssh-program", silent, "-H", "localhost:1,far-away:1")
    limit = iter((1, 2, 4))  # what has to come before it takes longer on a busy machine

    def late() -> float:
        seconds = next(limit)
        started = time.monotonic()
        job = start_job("-np", "2", "--start-timeout", str(seconds), *hosts, "echo", "x")
        assert job.wait() == 1
        took = time.monotonic() - started
        assert took >= seconds
        assert f"host far-away did not answer within {seconds} s (--start-timeout)" in job.err
        assert "[0]<stdout>" not in job.out
        job.wait_all_gone()
        return took - seconds if "(ssh said: still trying)" in job.err else math.inf

    assert_soon(late, 7.0)


def test_an_ssh_client_that_is_not_there(start_job: StartJob) -> None:
    job = start_job("-np", "1", "--ssh-program", "no-such-ssh", "-H", "far-away:1", "true")
    assert job.wait() == 1
    assert "host far-away: cannot start no-such-ssh: No such file or directory" in job.err


def test_many_ranks_fit_under_a_small_limit_of_descriptors_and_do_not_see_a_larger_one(horovodrun_path: str) -> None:
    script = f"ulimit -Sn 80; exec {horovodrun_path} -np 60 sh -c 'ulimit -Sn'"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == sorted(f"[{rank}]<stdout>:80" for rank in range(60))


def test_closed_standard_descriptors_do_no_harm(horovodrun_path: str, tmp_path: Path) -> None:
    script = f"exec {horovodrun_path} -np 2 --output-filename {tmp_path}/logs echo hi <&- >&- 2>&-"
    assert subprocess.run(["sh", "-c", script], timeout=60).returncode == 0
    assert (tmp_path / "logs" / "rank.1" / "stdout").read_text() == "[1]<stdout>:hi\n"


def test_our_messages_begin_a_line(start_job: StartJob) -> None:
    job = start_job("-np", "1", "sh", "-c", "printf tail >&2; exit 1")
    assert job.wait() == 1
    assert job.err.startswith("[0]<stderr>:tail\nhorovodrun: rank 0 on host")


@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_information_needs_no_job(start_job: StartJob, flag: str) -> None:
    job = start_job(flag)
    assert job.wait() == 0
    assert job.out


def test_dry_run_starts_nothing(start_job: StartJob, tmp_path: Path) -> None:
    job = start_job("-np", "2", "--dry-run", "touch", str(tmp_path / "touched"))
    assert job.wait() == 0
    assert "touch" in job.out
    assert not (tmp_path / "touched").exists()


def test_the_agent_is_not_for_use_by_hand(start_job: StartJob) -> None:
    job = start_job("--agent", "0" * 32)
    assert job.wait() == 2
    assert "not for use by hand" in job.err


def test_a_job_whose_time_is_up_says_where_its_ranks_stand(start_job: StartJob) -> None:
    program = "import threading\ndef waits_for_data():\n    threading.Event().wait()\nwaits_for_data()"
    stand = [f'[{rank}]<stderr>:  File "<string>", line 3 in waits_for_data' for rank in range(2)]
    say_where = lambda job: all(line in job.err for line in stand)  # noqa: E731
    job = ended_by_timeout(start_job, say_where, "-np", "2", PYTHON, "-c", program)
    for rank in (0, 1):
        assert f"[{rank}]<stderr>:Fatal Python error: Aborted" in job.err
    job.wait_all_gone()
