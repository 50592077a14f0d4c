"""Elastic training keeps its word: no sample is lost or counted twice, and all ranks hold the same bits."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos_proxy import FLIP, KINDS, ChaosProxy
from launcher_job import RunningJob, eventually
from oracle import Chaos, OracleJob
from peer_proxy import PeerProxy

from jobs import DEADLINE_S

DISCOVER = ("--host-discovery-script", "cat hosts")


@pytest.fixture
def jobs() -> Iterator[list[OracleJob]]:
    started: list[OracleJob] = []
    yield started
    for job in started:
        RunningJob.kill_everything(job)


def finish(job: OracleJob) -> None:
    job.stop()
    assert job.wait() == 0, job
    job.check()
    job.wait_all_gone()


def test_a_rank_may_die_at_any_moment(jobs: list[OracleJob], horovodrun_path: str, tmp_path: Path) -> None:
    """Inside a collective, at a commit, in a reset, in the synchronisation; also twice in a row, and holding a child."""
    job = OracleJob(horovodrun_path, tmp_path, ("-np", "3", "--min-np", "3"), more="with-child")
    jobs.append(job)
    job.wait_for_round(3)
    for moments in (
        ("1 step",),
        ("0 commit",),
        ("1 step", "0 sync"),
        ("2 step", "0 reset"),
        ("0 step", "1 reset", "1 sync", "2 sync", "0 step"),
    ):
        job.wait_for_round(3, job.break_at(moments))
    finish(job)


def resets(jobs: list[OracleJob], horovodrun: str, folder: Path, count: int) -> None:
    files = set(os.listdir("/dev/shm"))
    job = OracleJob(horovodrun, folder, ("-np", "2", "--min-np", "2"))
    jobs.append(job)
    job.wait_for_round(2)
    start = time.monotonic()
    (folder / "resets").write_text(str(count))
    job.wait_for(f"resources {count} ", DEADLINE_S + count)
    print(f"{count} resets in {time.monotonic() - start:.1f} s")
    finish(job)
    seen = re.findall(r"\[(\d)\]<stdout>:resources (\d+) (\{.*\})", job.out)
    for rank in ("0", "1"):
        early, late = (next(what for r, n, what in seen if r == rank and n == number) for number in ("10", str(count)))
        assert early == late, job
    print(seen[-1])
    left = set(os.listdir("/dev/shm")) - files  # of programs beside this test too, but theirs go when they end
    eventually(lambda: left.isdisjoint(os.listdir("/dev/shm")), f"the job leaves none of {left} in /dev/shm")


def test_resets_leave_nothing_behind(jobs: list[OracleJob], horovodrun_path: str, tmp_path: Path) -> None:
    resets(jobs, horovodrun_path, tmp_path, 40)


@pytest.mark.slow
def test_a_thousand_resets_leave_nothing_behind(jobs: list[OracleJob], horovodrun_path: str, tmp_path: Path) -> None:
    resets(jobs, horovodrun_path, tmp_path, 1000)


@pytest.mark.slow
def test_nobody_fails_without_a_fault(jobs: list[OracleJob], horovodrun_path: str, tmp_path: Path) -> None:
    """Four times more ranks than two cores, each at full speed, for HVD_CALM_SECONDS; every watch that can end a rank is on."""
    flags = ("-np", "8", "--min-np", "2", "--replace-stuck", "20", "--stall-check-shutdown-time-seconds", "20")
    job = OracleJob(horovodrun_path, tmp_path, (*flags, *DISCOVER), "localhost:8\n")
    jobs.append(job)
    members = job.wait_for_round(8)
    end = time.monotonic() + float(os.environ.get("HVD_CALM_SECONDS", "120"))
    while time.monotonic() < end and job.process.poll() is None:
        time.sleep(1)
    assert job.process.poll() is None, job
    assert job.members() == members, job
    assert len(job.said("begin")) == 8, job
    finish(job)
    print(f"{job.said('end')[0].commits} commits")


def run_chaos(
    jobs: list[OracleJob], horovodrun: str, folder: Path, seed: int, mean_s: float, seconds: float
) -> Chaos:
    """One job, to its end; the oracle has held."""
    folder.mkdir(exist_ok=True)
    with (
        contextlib.closing(ChaosProxy(folder / "rendezvous", seed)) as proxy,
        contextlib.closing(PeerProxy(folder)) as peers,
    ):
        flags = (*Chaos.FLAGS, *DISCOVER)
        wrapper = peers.exports + proxy.wrapper
        job = OracleJob(horovodrun, folder, flags, Chaos.HOSTS + Chaos.OTHER, wrapper=wrapper)
        jobs.append(job)
        job.wait_for_round(5)
        assert proxy.passed >= 5
        assert peers.ways
        chaos = Chaos(job, proxy, peers, seed, mean_s)
        chaos.run(seconds)
        finish(job)
    chaos.count_nets()
    return chaos


def test_chaos(jobs: list[OracleJob], horovodrun_path: str, tmp_path: Path) -> None:
    chaos = run_chaos(jobs, horovodrun_path, tmp_path, seed=1, mean_s=0.7, seconds=6)
    print(f"{chaos.faults} faults: {chaos.counts}, {chaos.job.said('end')[0].commits} commits")


def test_a_bad_way_to_the_rendezvous_loses_nothing(
    jobs: list[OracleJob], horovodrun_path: str, tmp_path: Path
) -> None:
    """While ranks meet anew: what they ask and hear comes late, is cut off, or is garbled."""
    with contextlib.closing(ChaosProxy(tmp_path / "rendezvous", 1)) as proxy:
        job = OracleJob(horovodrun_path, tmp_path, ("-np", "2", "--min-np", "2"), wrapper=proxy.wrapper)
        jobs.append(job)
        job.wait_for_round(2)
        for kind in (*KINDS, FLIP):
            before = proxy.passed
            fault = proxy.fault(kind, 1.0, from_next=True)
            job.wait_for_round(2, job.break_at(("1 step",)))
            assert proxy.passed > before, job
            assert any(number > before for number in fault.struck), (fault, before, job)
        finish(job)


@pytest.mark.slow
def test_chaos_for_minutes(jobs: list[OracleJob], horovodrun_path: str, tmp_path: Path) -> None:
    """Jobs of a minute, each with a seed of its own. HVD_CHAOS_SECONDS: for how long; HVD_CHAOS_FAULTS: or until so many
    faults. HVD_CHAOS_MEAN: seconds between two. HVD_CHAOS_LOG: a file that gets a line for each job, and that the next
    run goes on with."""
    seconds = float(os.environ.get("HVD_CHAOS_SECONDS", "120"))
    most = int(os.environ.get("HVD_CHAOS_FAULTS", "1000000000"))
    mean_s = float(os.environ.get("HVD_CHAOS_MEAN", "2"))
    log = Path(os.environ.get("HVD_CHAOS_LOG", str(tmp_path / "chaos.jsonl")))
    done = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    seed = max((one["seed"] for one in done), default=0)
    while (spent := sum(one["seconds"] for one in done)) < seconds and sum(one["faults"] for one in done) < most:
        seed += 1
        length = min(60.0, seconds - spent)
        chaos = run_chaos(jobs, horovodrun_path, tmp_path / str(seed), seed, mean_s, length)
        done.append({"seed": seed, "seconds": length, "mean": mean_s, "faults": chaos.faults, **chaos.counts})
        with log.open("a") as file:
            file.write(json.dumps(done[-1]) + "\n")
        print(f"{sum(one['faults'] for one in done)} faults in {len(done)} jobs so far; this one: {chaos.counts}", flush=True)
