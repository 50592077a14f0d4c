"""How elastic jobs end when they do not end well: exit codes, words, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from elastic_job import StartElastic
from launcher_job import eventually


@pytest.mark.parametrize(
    ("flags", "command", "code", "words"),
    [
        (("-np", "2", "--min-np", "1"), ("sh", "-c", "exit 3"), 3, "Exit code: 3"),
        (("-np", "2", "--min-np", "1"), ("no-such-command",), 127, "command not found: no-such-command"),
        (("-np", "2", "--min-np", "1"), ("true",), 0, ""),
        (
            ("-np", "2", "--elastic-timeout", "1", "--host-discovery-script", "echo localhost:1"),
            ("true",),
            1,
            "timed out: the job needs at least 2 slots and has 1 after 1 s (--elastic-timeout)",
        ),
        (
            ("-np", "1", "--elastic-timeout", "1", "--host-discovery-script", "exec sleep 1000"),
            ("true",),
            1,
            "exec sleep 1000: it ran for more than 1 s (--elastic-timeout) and was killed",
        ),
        (
            ("-np", "1", "--host-discovery-script", "echo oops; exit 4"),
            ("true",),
            1,
            "--host-discovery-script echo oops; exit 4: it exited with code 4",
        ),
        (("-np", "1", "--host-discovery-script", "echo a:b:c:d"), ("true",), 1, "its line 1 'a:b:c:d'"),
    ],
)
def test_jobs_that_never_train(
    flags: tuple[str, ...], command: tuple[str, ...], code: int, words: str, start_elastic: StartElastic
) -> None:
    job = start_elastic(*flags, command=command)
    assert job.wait() == code, job
    assert words in job.err, job
    job.wait_all_gone()


def test_a_slot_that_keeps_failing_is_given_up(start_elastic: StartElastic) -> None:
    fails_alone = 'test "$HOROVOD_RANK" = 1 && exit 5; exec "$0" "$@"'
    job = start_elastic("-np", "2", "--min-np", "2", wrapper=fails_alone)
    assert job.wait() == 5, job
    assert "slot 1 of host localhost is given up: 3 processes failed there one after the other" in job.err, job
    job.wait_all_gone()


def test_resets_are_limited_and_a_signal_ends_a_job_that_waits(start_elastic: StartElastic) -> None:
    job = start_elastic("-np", "2", "--min-np", "1", "--max-restarts", "0")
    job.wait_for_size(2)
    job.kill(1)
    assert job.wait() == 137, job
    assert "Reset limit reached: the job has been reset 0 times" in job.err, job
    job.wait_all_gone()

    waiting = start_elastic("-np", "1", "--host-discovery-script", "cat hosts", hosts="localhost:1\n")
    waiting.wait_for_size(1)
    waiting.set_hosts("")
    waiting.wait_for("the job needs at least 1: waiting for hosts")
    waiting.signal(signal.SIGTERM)
    assert waiting.wait() == 143, waiting
    waiting.wait_all_gone()


def test_a_discovery_script_does_not_outlive_a_killed_launcher(start_elastic: StartElastic) -> None:
    job = start_elastic("-np", "1", "--host-discovery-script", "sleep 1000 & sleep 1001; true", command=("true",))
    eventually(lambda: len(job.named("sleep")) == 2, f"the script runs\n{job}")
    job.signal(signal.SIGKILL)
    job.wait_all_gone()


def test_a_discovery_script_whose_guard_is_stopped_ends_with_the_job(start_elastic: StartElastic) -> None:
    job = start_elastic("-np", "1", "--host-discovery-script", "exec sleep 1000", command=("true",))
    eventually(lambda: len(job.named("sleep")) == 1, f"the script runs\n{job}")
    script = job.named("sleep")[0]
    guard = int(Path(f"/proc/{script}/stat").read_text().rpartition(")")[2].split()[1])
    assert guard != job.pid
    os.kill(guard, signal.SIGSTOP)
    job.signal(signal.SIGTERM)
    assert job.wait() == 143, job
    job.wait_all_gone()


def test_what_a_discovery_script_leaves_in_the_background_ends_with_it(
    start_elastic: StartElastic, tmp_path: Path
) -> None:
    # Whose second run hangs, and ends with the job.
    again = f"touch {tmp_path}/again; sleep 1001 & exec sleep 1002"
    script = f"sleep 1000 >&- & mkdir {tmp_path}/first 2>&- || {{ {again}; }}; echo localhost:1"
    wait = f"until test -e {tmp_path}/again; do sleep 0.02; done"
    job = start_elastic("-np", "1", "--host-discovery-script", script, command=("sh", "-c", wait))
    assert job.wait() == 0, job
    job.wait_all_gone()


@pytest.mark.slow
def test_a_discovery_script_that_runs_for_too_long_is_said_to(start_elastic: StartElastic) -> None:
    job = start_elastic("-np", "1", "--host-discovery-script", "exec sleep 1000", command=("true",))
    assert job.wait() == 1, job
    assert "--host-discovery-script exec sleep 1000: it ran for more than 30 s and was killed" in job.err, job
    job.wait_all_gone()


def test_a_rank_that_hangs_is_replaced(start_elastic: StartElastic, tmp_path: Path) -> None:
    worker = (sys.executable, str(Path(__file__).parent / "hanging_worker.py"), str(tmp_path / "has_hung"))
    # Longer than a rank may be kept from running on a busy machine.
    stall = ("-x", "HOROVOD_STALL_CHECK_TIME_SECONDS=1", "-x", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=3")
    flags = ("-np", "2", "--min-np", "2", "--replace-stuck", "3", "--events", str(tmp_path / "events"), *stall)
    job = start_elastic(*flags, command=worker)
    assert job.wait() == 0, job
    assert "has not come while the others wait for the next round: it is ended (--replace-stuck)" in job.err, job
    hung, *anew = [one.pid for one in job.begins() if one.rank == 1]
    assert f"others wait for rank 1 on host localhost (pid {hung}); `horovodrun --stacks " in job.err, job
    assert len({hung, *anew}) == 2, job
    assert len({one.pid for one in job.begins() if one.rank == 0}) == 1, job
    assert {one.batch for one in job.begins()[2:]} == {5}, "rank 0 had committed the fifth step"
    events = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    stalled = [event for event in events if event["event"] == "rank_stalled"]
    assert [(event["rank"], event["host"], event["pid"]) for event in stalled] == [(1, "localhost", hung)]
    job.wait_all_gone()


def test_ranks_that_hang_before_their_first_round_are_replaced(start_elastic: StartElastic, tmp_path: Path) -> None:
    hangs_once = f'if [ "$HOROVOD_RANK" != 0 ] && mkdir {tmp_path}/hung$HOROVOD_RANK; then exec sleep 1000; fi; exec "$0" "$@"'
    # Longer than a busy machine makes one start last than another: three slow ones in a row would be given up.
    job = start_elastic("-np", "3", "--min-np", "3", "--replace-stuck", "15", wrapper=hangs_once)
    job.wait_for_size(3)
    assert "rank 1" in job.err, job
    assert "rank 2" in job.err, job
    said = "was started and has not come while the others wait for it: it is ended (--replace-stuck)"
    assert job.err.count(said) >= 2, job
    job.stop()
    assert job.wait() == 0, job
    job.wait_all_gone()
