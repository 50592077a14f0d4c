"""Ranks of elastic jobs that die, are replaced, and come and go with their hosts."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from elastic_job import ElasticJob, StartElastic
from launcher_job import eventually

from jobs import DEADLINE_S

DISCOVER = ("--host-discovery-script", "cat hosts")


def finish(job: ElasticJob) -> None:
    job.stop()
    assert job.wait() == 0, job
    job.assert_consistent()
    job.wait_all_gone()


def test_a_killed_rank_is_replaced_and_the_others_go_on(start_elastic: StartElastic) -> None:
    job = start_elastic("-np", "3", "--min-np", "3")
    before = job.wait_for_size(3)
    # Rank 1, in the middle of the ranks; then rank 0, whose state the others have as well; then both of them at once.
    for victims in ((1,), (0,), (0, 1)):
        old = job.wait_for_size(3)
        batches = {pid: one.batch for pid, one in job.latest().items()}
        since = min([job.kill(rank) for rank in victims])
        survivors = [pid for rank, pid in old.items() if rank not in victims]
        seconds = job.wait_for_restart(survivors, since)
        print(f"without {victims}: {seconds:.2f} s")
        now = job.wait_for_size(3)
        assert set(survivors) < set(now.values()), job  # the same processes
        assert len(set(now.values()) - set(old.values())) == len(victims)
        latest = job.latest()
        assert len({latest[pid].batch for pid in now.values()}) == 1, job  # who is new has the others' state
        assert latest[now[0]].batch > max(batches[pid] for pid in survivors), job
        assert sorted(latest[pid].local_rank for pid in now.values()) == [0, 1, 2]
        assert now[2] == old[2] or victims == (0, 1), "who lives does not move without need"
    assert now[0] == before[2], "the only one that has lived from the beginning leads"
    finish(job)


def test_slots_keep_their_cores_and_one_that_comes_later_shares_them(
    start_elastic: StartElastic, horovodrun_path: str
) -> None:
    static = subprocess.run(
        [horovodrun_path, "-np", "2", "--bind", "core", "true"], capture_output=True, text=True, timeout=60
    )
    if static.returncode != 0:
        pytest.skip(f"--bind core of two ranks needs two cores: {static.stderr}")
    flags = ("-np", "2", "--min-np", "2", "--max-np", "3", "--bind", "core", "--blacklist", "none", *DISCOVER)
    job = start_elastic(*flags, hosts="localhost:2\n")

    def cores_of(pid: int) -> frozenset[int]:
        return frozenset(os.sched_getaffinity(pid))

    before = {rank: cores_of(pid) for rank, pid in job.wait_for_size(2).items()}
    assert before[0].isdisjoint(before[1]), job
    job.kill(1)
    eventually(lambda: len({one.pid for one in job.begins()}) == 3, f"a process in its place\n{job}")
    after = job.wait_for_size(2)
    assert {rank: cores_of(pid) for rank, pid in after.items()} == before
    job.set_hosts("localhost:3\n")
    three = job.wait_for_size(3)
    assert {cores_of(pid) for pid in three.values()} == set(before.values()), job
    finish(job)


def test_no_two_ranks_of_a_host_that_changes_have_one_gpu(start_elastic: StartElastic) -> None:
    flags = ("-np", "2", "--min-np", "1", "--max-np", "4", "--bind-gpu", "-x", "CUDA_VISIBLE_DEVICES=5,6,7", "--blacklist", "none")
    job = start_elastic(*flags, *DISCOVER, hosts="localhost:2\n")

    def gpus_of(ranks: dict[int, int]) -> dict[int, str]:
        gpus = {}
        for rank, pid in ranks.items():
            variables = Path(f"/proc/{pid}/environ").read_text().split("\0")
            gpus[rank] = next(line for line in variables if line.startswith("CUDA_VISIBLE_DEVICES="))[-1]
        return gpus

    first = job.wait_for_size(2)
    assert gpus_of(first) == {0: "5", 1: "6"}
    job.kill(1)
    eventually(lambda: len({one.pid for one in job.begins()}) == 3, f"a process in its place\n{job}")
    assert gpus_of(job.wait_for_size(2)) == {0: "5", 1: "6"}
    job.set_hosts("localhost:3\n")
    assert gpus_of(job.wait_for_size(3)) == {0: "5", 1: "6", 2: "7"}
    job.set_hosts("localhost:1\n")
    assert gpus_of(job.wait_for_size(1)) == {0: "5"}
    job.set_hosts("localhost:3\n")  # what those had who are gone is free again
    assert sorted(gpus_of(job.wait_for_size(3)).values()) == ["5", "6", "7"]
    job.set_hosts("localhost:4\n")
    job.wait_for("all 3 GPUs of this host that this job may use have a rank, expected one for each")
    assert sorted(gpus_of(job.wait_for_size(3)).values()) == ["5", "6", "7"]
    finish(job)


def test_a_job_grows_shrinks_waits_and_resumes(start_elastic: StartElastic) -> None:
    flags = ("-np", "1", "--min-np", "1", "--max-np", "3", "--slots-per-host", "1", *DISCOVER)
    job = start_elastic(*flags, hosts="localhost\n")
    first = job.wait_for_size(1)[0]
    job.set_hosts("localhost:2\n")
    assert job.wait_for_size(2)[0] == first
    job.set_hosts("127.0.0.1:5\nlocalhost:2\n")
    three = job.wait_for_size(3)  # and not 7
    assert three[0] == first
    job.set_hosts("localhost:1\n")
    assert job.wait_for_size(1)[0] == first
    job.wait_for("its slot was removed: host 127.0.0.1 has left the job")
    job.set_hosts("\n")
    job.wait_for("the hosts have 0 slots, the job needs at least 1: waiting for hosts")
    batch = job.latest()[first].batch
    job.set_hosts("localhost:2\n")
    assert job.wait_for_size(2)[0] == first
    assert job.latest()[first].batch > batch
    finish(job)


def test_a_host_where_a_process_failed_is_left_aside(start_elastic: StartElastic) -> None:
    names = "localhost:1,127.0.0.1:1,127.0.0.2:1"
    job = start_elastic("-np", "3", "--min-np", "1", "-H", names, "--blacklist-cooldown-range", "1", "2")
    old = job.wait_for_size(3)
    job.kill(0)
    job.wait_for("host localhost is left aside for 2 s: a process failed there")
    back = job.wait_for_size(3)  # it comes back, behind the others
    assert [back[0], back[1]] == [old[1], old[2]]
    assert back[2] != old[0]
    finish(job)


def test_a_slot_where_a_process_failed_is_left_aside(start_elastic: StartElastic) -> None:
    """The others keep their processes and, while there are as many, their local ranks; it comes back to its own."""
    flags = ("-np", "3", "--min-np", "1", "--blacklist", "slot", "--blacklist-cooldown-range", "1", "2")
    job = start_elastic(*flags)
    old = job.wait_for_size(3)
    job.kill(0)
    job.wait_for("slot 0 of host localhost is left aside for 2 s: its process failed")
    two = job.wait_for_size(2)
    assert {job.latest()[pid].local_rank: pid for pid in two.values()} == {0: old[2], 1: old[1]}
    back = {job.latest()[pid].local_rank: pid for pid in job.wait_for_size(3).values()}
    assert (back[1], back[2]) == (old[1], old[2])
    assert back[0] != old[0]
    finish(job)


def parent_of(pid: int) -> int:
    return int((Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])


def assert_status(job: ElasticJob, ranks: dict[int, int]) -> None:
    """--status says who is there, and which rounds there were and why each began."""
    status = job.status()
    assert status["pid"] == job.pid
    slots = [slot for host in status["hosts"] for slot in host["slots"] if slot["state"] == "running"]
    assert {slot["pid"] for slot in slots} >= set(ranks.values()), status
    rounds = status["rounds"]
    assert [one["round"] for one in rounds] == list(range(1, len(rounds) + 1))
    assert rounds[0]["why"] == "the job began"
    assert any("host 127.0.0.1 was told to go" in one["why"] for one in rounds), rounds
    assert rounds[-1]["ranks"] == len(ranks)
    nobody = subprocess.run([job.horovodrun, "--status", "1"], check=False, capture_output=True, text=True, timeout=DEADLINE_S)
    assert (nobody.returncode, nobody.stdout) == (1, "")
    assert "process 1 is no horovodrun with a job" in nobody.stderr


def test_who_gets_sigterm_leaves_without_counting_as_failed(start_elastic: StartElastic, tmp_path: Path) -> None:
    """--grace: an agent, then ranks. Below --min-np the others wait."""
    files = ("--output-filename", str(tmp_path / "out"))
    flags = ("-np", "3", "--min-np", "2", "--grace", "60", *files, "--host-discovery-script", "cat hosts; echo >> runs")
    job = start_elastic(*flags, hosts="localhost:2\n127.0.0.1:1\n")
    old = job.wait_for_size(3)
    os.kill(parent_of(old[2]), signal.SIGTERM)
    job.wait_for("host 127.0.0.1 was told to go (SIGTERM)")
    assert job.wait_for_size(2) == {0: old[0], 1: old[1]}
    batches = [one.batch for one in job.begins()]
    assert batches == sorted(batches), "nobody has gone back to a commit"

    # Its host is used again when the list has been without it.
    job.set_hosts("localhost:2\n")
    runs = job.hosts_path.with_name("runs")
    seen = runs.stat().st_size
    eventually(lambda: runs.stat().st_size > seen + 1, "another run of the script has begun and ended")
    job.set_hosts("localhost:2\n127.0.0.1:1\n")
    three = job.wait_for_size(3)

    os.kill(three[1], signal.SIGTERM)
    job.wait_for(f"rank 1 on host localhost (pid {three[1]}) was told to go (SIGTERM)")
    two = job.wait_for_size(2)
    assert two == {0: three[0], 1: three[2]}
    os.kill(two[0], signal.SIGTERM)
    job.wait_for("the hosts have 1 slot, the job needs at least 2: waiting for hosts")
    since = time.time()
    job.set_hosts("localhost:2\n127.0.0.1:1\n127.0.0.2:1\n")
    job.wait_for_restart([two[1]], since)
    last = job.wait_for_size(2)
    assert last[0] == two[1]
    assert_status(job, last)
    assert "left aside" not in job.err, job
    assert "exited with" not in job.err, job
    finish(job)
    written = "".join((tmp_path / "out" / f"rank.{rank}" / "stdout").read_text() for rank in range(3))
    assert sorted(written.splitlines()) == sorted(job.out.splitlines())


def test_a_spare_takes_the_place_of_a_lost_rank(start_elastic: StartElastic) -> None:
    job = start_elastic("-np", "3", "--min-np", "2", "--spares", "1", "-H", "localhost:4")
    before = job.wait_for_size(3)
    eventually(lambda: len(job.slots("spare")) == 1, f"a spare runs\n{job}")
    spare = job.slots("spare")[0]
    assert spare["rank"] is None
    os.kill(spare["pid"], signal.SIGSTOP)
    job.wait_for(f"a spare process on host localhost (pid {spare['pid']}) was stopped (SIGSTOP)\n")
    os.kill(spare["pid"], signal.SIGCONT)
    job.wait_for(f"a spare process on host localhost (pid {spare['pid']}) goes on")
    os.kill(before[2], signal.SIGSTOP)
    job.wait_for(f"rank 2 on host localhost (pid {before[2]}) was stopped (SIGSTOP): the others wait for it")
    assert [slot["pid"] for slot in job.slots("stopped")] == [before[2]]
    os.kill(before[2], signal.SIGCONT)
    job.wait_for(f"rank 2 on host localhost (pid {before[2]}) goes on")
    job.kill(1)
    after = job.wait_for_size(3)
    assert after == {**before, 1: spare["pid"]}, job  # it has the lost one's rank, and everybody else its own
    assert [job.latest()[pid].local_rank for _, pid in sorted(after.items())] == [0, 1, 2], job
    eventually(lambda: [one["incarnation"] for one in job.slots("spare")] == [2], f"the next spare runs\n{job}")
    job.stop()
    assert job.wait() == 0, job
    job.assert_consistent()
    assert "waits for other ranks" not in job.err, job
    job.wait_all_gone()


def test_a_stopped_rank_is_replaced_in_hosts_of_a_watched_file(start_elastic: StartElastic) -> None:
    watched = ("--hostfile", "hosts", "--watch-hostfile")
    job = start_elastic("-np", "1", *watched, "--replace-stuck", "4", hosts="localhost slots=1\n")
    first = job.wait_for_size(1)[0]
    job.set_hosts("localhost slots=2  # one more\n")
    before = job.wait_for_size(2)
    assert before[0] == first
    job.set_hosts("localhost slots=2 and what is this\n")
    job.wait_for("--watch-hostfile: hosts:1: unexpected 'and'")
    os.kill(first, signal.SIGSTOP)  # and the other has as long to come back when it has ended
    job.wait_for("is stopped: it is ended (--replace-stuck)")
    eventually(lambda: first not in job.processes(), f"it is ended\n{job}")
    after = job.wait_for_size(2)
    assert after[0] == before[1], job  # who has the state leads
    # A launcher that is killed takes everything with it.
    job.signal(signal.SIGKILL)
    job.wait_all_gone()
