"""Nothing is left behind, whoever dies and whenever."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
from launcher_job import StartJob, eventually

from jobs import assert_soon, program

# A rank with three children: one in its group, one in a session of its own, and one in a session of its own whose parent has
# ended. All ignore SIGTERM: the first and the third because that is inherited.
FAMILY = (
    "trap '' TERM; sleep 1001 & setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' & "
    "(setsid sleep 1002 &) ; echo ready; while :; do sleep 1; done"
)


def ready(job: object, ranks: int) -> None:
    eventually(lambda: job.out.count(">:ready\n") == ranks, f"{ranks} ranks are ready\n{job}")  # type: ignore[attr-defined]


@pytest.mark.parametrize("hosts", ["localhost:2", "localhost:1,127.0.0.1:1", "localhost:1,far-away:1"])
def test_a_launcher_that_is_killed_leaves_nothing(start_job: StartJob, fake_ssh: str, hosts: str) -> None:
    job = start_job("-np", "2", "-H", hosts, "--ssh-program", fake_ssh, "sh", "-c", FAMILY)
    ready(job, 2)
    assert len(job.processes()) > 8
    job.signal(signal.SIGKILL)
    assert job.wait() == 137
    job.wait_all_gone()


@pytest.mark.parametrize("trials", [10, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_launcher_that_is_killed_at_any_moment_leaves_nothing(start_job: StartJob, trials: int) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    for _ in range(trials):
        job = start_job("-np", "2", "-H", "localhost:1,127.0.0.1:1", "sh", "-c", "sleep 1000 & wait")
        moment = time.monotonic() + dice.uniform(0, 0.1)
        while time.monotonic() < moment:
            pass
        job.signal(signal.SIGKILL)
        job.wait()
        job.wait_all_gone()


@pytest.mark.parametrize("victim", ["hvd-agent", "hvd-guard"])
def test_an_agent_that_is_killed_takes_its_ranks_along_and_is_reported(start_job: StartJob, victim: str) -> None:
    def seconds() -> float:
        job = start_job("-np", "2", "sh", "-c", FAMILY)
        ready(job, 2)
        started = time.monotonic()
        os.kill(job.named(victim)[0], signal.SIGKILL)
        assert job.wait() == 1
        took = time.monotonic() - started
        assert "lost host localhost: its agent" in job.err
        job.wait_all_gone()
        return took

    assert_soon(seconds, 2 if victim == "hvd-agent" else 30)


def test_the_loss_of_one_host_ends_the_ranks_of_the_other(start_job: StartJob) -> None:
    job = start_job("-np", "2", "-H", "localhost:1,127.0.0.1:1", "sh", "-c", "echo ready; exec sleep 1000")
    ready(job, 2)
    os.kill(job.named("hvd-agent")[0], signal.SIGKILL)
    assert job.wait() == 1
    assert "lost host" in job.err
    job.wait_all_gone()


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP"])
def test_a_signal_to_the_launcher_terminates_the_ranks(start_job: StartJob, name: str) -> None:
    number = signal.Signals[f"SIG{name}"]
    traps = " ".join(f"trap 'echo got {each}; exit 0' {each};" for each in ("INT", "TERM", "HUP"))
    job = start_job("-np", "2", "sh", "-c", f"{traps} echo ready; while :; do sleep 0.05; done")
    ready(job, 2)
    job.signal(number)
    assert job.wait() == 128 + number
    assert sorted(job.out.splitlines()[2:]) == [f"[0]<stdout>:got {name}", f"[1]<stdout>:got {name}"]
    assert "Process name" not in job.err
    job.wait_all_gone()


@pytest.mark.slow
def test_stubborn_ranks_are_killed_after_five_seconds(start_job: StartJob) -> None:
    job = start_job("-np", "1", "sh", "-c", FAMILY)
    ready(job, 1)
    started = time.monotonic()
    job.signal(signal.SIGTERM)
    assert job.wait() == 143
    assert 4.9 <= time.monotonic() - started < 8
    job.wait_all_gone()


def test_a_second_interrupt_kills_at_once(start_job: StartJob) -> None:
    def seconds() -> float:
        job = start_job("-np", "2", "sh", "-c", FAMILY)
        ready(job, 2)
        job.signal(signal.SIGINT)
        job.wait_for("got SIGINT: terminating the ranks")
        started = time.monotonic()
        job.signal(signal.SIGINT)
        assert job.wait() == 130
        job.wait_all_gone()
        return time.monotonic() - started

    assert_soon(seconds, 2)


def test_an_interrupt_while_agents_are_being_reached_ends_the_launch(start_job: StartJob, tmp_path: Path) -> None:
    silent = program(tmp_path / "silent_ssh", "#!/bin/sh\nexec sleep 1003\n")
    job = start_job("-np", "1", "--ssh-program", silent, "-H", "far-away:1", "true")
    eventually(lambda: bool(job.named("sleep")), "ssh has been started")
    job.signal(signal.SIGINT)
    assert job.wait() == 130
    job.wait_all_gone()


def test_a_stopped_agent_ends_with_its_launcher(start_job: StartJob) -> None:
    job = start_job("-np", "1", "sh", "-c", "echo ready; exec sleep 1000")
    ready(job, 1)
    agents = [*job.named("hvd-agent"), *job.named("hvd-guard")]
    assert len(agents) == 2, job
    for pid in agents:
        os.kill(pid, signal.SIGSTOP)
    job.signal(signal.SIGTERM)
    for said in ("got SIGTERM: terminating the ranks", "got SIGTERM: killing the ranks"):
        job.wait_for(said)
        job.signal(signal.SIGTERM)
    assert job.wait() == 143, job
    job.wait_all_gone()


def test_a_stopped_rank_is_killed_as_well(start_job: StartJob) -> None:
    job = start_job("-np", "2", "sh", "-c", "echo ready; if [ $HOROVOD_RANK = 0 ]; then kill -STOP $$; fi; exec sleep 1000")
    ready(job, 2)
    eventually(lambda: any("T (stopped)" in open(f"/proc/{pid}/status").read() for pid in job.named("sh")), "rank 0 is stopped")
    job.signal(signal.SIGKILL)
    job.wait()
    job.wait_all_gone()
