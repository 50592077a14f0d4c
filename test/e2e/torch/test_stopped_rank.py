"""Nothing moves and nobody has died: a stopped rank, ranks that wait for different tensors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.takes(110)

START = """
import os, signal, sys, threading
import torch
import horovod.torch as hvd

hvd.init()
torch.set_num_threads(1)
"""

STOPPED = """
# All of a turn are submitted before one is done. A rank stops where many are left: so a collective is under way, even
# if it does not get its turn at once.
tensors = [torch.ones(2_000_000) for _ in range(30)]
try:
    for _ in range(100):
        handles = [hvd.allreduce_async_(x, name=f"x{i}", op=hvd.Min) for i, x in enumerate(tensors)]
        hvd.synchronize(handles[2])
        if hvd.rank() == int(sys.argv[1]) and not hvd.poll(handles[15]):
            os.kill(os.getpid(), signal.SIGSTOP)
        for handle in handles[3:]:
            hvd.synchronize(handle)
except hvd.HorovodInternalError as error:
    print("heard", str(error).replace(chr(10), " "), flush=True)
    raise
"""

DIFFERENT = """
hvd.allreduce(torch.ones(1), name=f"half.{hvd.rank()}")
"""


@pytest.mark.parametrize("stopped", [0, 1], ids=["the root", "another"])
def test_a_rank_that_is_stopped_in_a_collective_ends_the_job(stopped: int, horovodrun: Any) -> None:
    settings = {
        "HOROVOD_STALL_CHECK_TIME_SECONDS": "1",
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "2",
        "HOROVOD_FUSION_THRESHOLD": "0",
    }
    job = horovodrun(2, "-c", START + STOPPED, str(stopped), env=settings)
    assert job.code != 0, job.text
    heard = re.findall(r"heard (.*)", job.out)
    assert len(heard) == 1, job.text
    blames = f"rank {stopped}, which does not move"
    assert re.match(r'Stalled: allreduce "allreduce.x\d+" has not moved for ', heard[0]), job.text
    for part in (blames, "Last operations of rank", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"):
        assert part in heard[0], job.text
    said = [line for line in job.err.splitlines() if line.startswith("[") and "Stalled: " in line and blames in line]
    warnings = [line for line in said if ": W " in line]
    assert len(warnings) == 1, job.text


# In shared memory the others wait for it without a message: in an exchange of callers, or in a collective on gradients
# that are views of buckets.
EXCHANGED = """
x = torch.ones(1 << 16)
def step(i):
    if i == 10 and hvd.rank() == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGSTOP)
    hvd.allreduce_(x, name="exchanged", op=hvd.Min)
"""

VIEWS = """
model = torch.nn.Sequential(*(torch.nn.Linear(1000, 1000) for _ in range(4)))
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1e-4), gradient_as_bucket_view=True)
inputs = torch.ones(1, 1000)
def step(i):
    optimizer.zero_grad()
    model(inputs).sum().backward()
    if i == 10 and hvd.rank() == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGSTOP)
    optimizer.step()
"""

UNTIL_STOPPED = """
try:
    for i in range(1000):
        step(i)
except hvd.HorovodInternalError as error:
    print("heard", str(error).replace(chr(10), " "), flush=True)
    raise
"""


# The root too: it decides what runs, so it is missed where nothing runs yet.
@pytest.mark.parametrize("stopped", [0, 1], ids=["the root", "another"])
@pytest.mark.parametrize(("program", "path"), [(EXCHANGED, "exchanged"), (VIEWS, "direct")], ids=["exchange", "views"])
def test_a_rank_that_is_stopped_where_others_wait_in_shared_memory_ends_the_job(
    program: str, path: str, stopped: int, horovodrun: Any
) -> None:
    settings = {
        "HOROVOD_STALL_CHECK_TIME_SECONDS": "1",
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "2",
        "HOROVOD_LOG_LEVEL": "debug",
    }
    job = horovodrun(2, "-c", START + program + UNTIL_STOPPED, str(stopped), env=settings)
    assert job.code != 0, job.text
    assert job.err.count(f"op=allreduce backend=shm path={path}") == 2, job.text
    heard = re.findall(rf"\[{1 - stopped}\]<stdout>:heard (.*)", job.out)
    assert len(heard) == 1, job.text
    for part in ("Stalled", f"rank {stopped}", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"):
        assert part in heard[0], job.text
    if program == EXCHANGED and stopped == 0:
        assert 'allreduce "allreduce.exchanged" has not begun for' in heard[0], job.text
        assert "which decides what runs and does not answer" in heard[0], job.text


WAITS_ITS_TURN = """
import pathlib, time

# The block of rank 2 goes to rank 0, and from there to rank 1, which hears nothing meanwhile. Rank 0 is slow
# at first: it is stopped for 0.6 s, time and again, and runs between until the thread that moves the data has had a
# millisecond of processor time, which the kernel counts in ticks of up to four.
# Rank 2 copies its block before it sends anything: a larger one takes the two seconds on a busy machine.
pid = hvd.broadcast_object(os.getpid(), 0)
done = threading.Event()
tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
(mover,) = [task for task in tasks if (task / "comm").read_text().startswith("hvd-lane")]
def processor_time():
    try:
        return int((mover / "schedstat").read_text().split()[0]) / 1e9
    except (FileNotFoundError, ProcessLookupError):  # it has its result, and has ended
        done.set()
        return 0.0
def slow_down():
    for _ in range(12):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.6)
        os.kill(pid, signal.SIGCONT)
        start = processor_time()
        while not done.is_set() and processor_time() - start < 0.001:
            pass
slower = threading.Thread(target=slow_down)
rows = 20_000_000 if hvd.rank() == 2 else 1
mine = torch.full((rows,), float(hvd.rank()))
hvd.barrier()
if hvd.rank() == 1:
    slower.start()
start = time.monotonic()
total = hvd.allgather(mine, name="uneven")
took = time.monotonic() - start
if hvd.rank() == 1:
    done.set()
    slower.join()
print("got", total.shape[0], total[1].item(), "slow" if took > 5 else f"too fast to show anything: {took} s", flush=True)
"""


def assert_no_stall(horovodrun: Any, script: Path, program: str, ranks: int, line: str) -> None:
    """Every rank prints the line, though the limits for a stall are two seconds."""
    script.write_text(START + program)
    limits = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "2", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "2"}
    job = horovodrun(ranks, str(script), env=limits)
    assert job.code == 0, job.text
    assert job.out.count(line) == ranks, job.text
    assert "Stalled" not in job.err, job.text


def test_a_rank_that_waits_for_its_turn_is_not_stuck(horovodrun: Any, tmp_path: Path) -> None:
    assert_no_stall(horovodrun, tmp_path / "turn.py", WAITS_ITS_TURN, 3, "got 20000002 1.0 slow")


def test_ranks_that_all_wait_for_something_else_are_told_after_a_second(horovodrun: Any) -> None:
    limits = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "3", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "3"}
    job = horovodrun(2, "-c", START + DIFFERENT, env=limits)
    assert "Deadlock: every rank waits for a tensor" in job.err, job.text
    assert job.err.index("Deadlock: ") < job.err.index("Stalled: "), job.text
    assert job.err.count("Deadlock: ") == 1, job.text
    for rank in (0, 1):
        log_line = rf"^\[{rank}\]<stderr>:.*: E .*Stalled for more than 3 s: .*; shutting down"
        assert len(re.findall(log_line, job.err, re.MULTILINE)) == 1, job.text
    for rank in (0, 1):
        assert f'rank {rank}: allreduce "allreduce.half.{rank}"' in job.err, job.text
    assert "Do ranks run unequal numbers of steps? A rank that has no more data calls hvd.join()." in job.err, job.text


PAUSED = """
import subprocess

pids = " ".join(str(pid) for pid in hvd.allgather_object(os.getpid()))
if hvd.rank() == 0:
    late = hvd.allreduce_async(torch.ones(1), name="late")
hvd.barrier()
if hvd.rank() == 1:
    subprocess.run(["sh", "-c", f"kill -STOP {pids}; sleep 3; kill -CONT {pids}"], check=True)
    late = hvd.allreduce_async(torch.ones(1), name="late")
print("got", hvd.synchronize(late).item(), flush=True)
"""


def test_the_time_in_ctrl_z_does_not_count_as_a_stall(horovodrun: Any, tmp_path: Path) -> None:
    assert_no_stall(horovodrun, tmp_path / "paused.py", PAUSED, 2, "got 1.0")


LOADS = """
def load_data():
    threading.Event().wait()

hvd.allreduce(torch.ones(1), name="begin")
if hvd.rank() == 1:
    load_data()
hvd.allreduce(torch.ones(1), name="w")
"""


def test_a_stall_names_the_rank_that_others_wait_for(horovodrun: Any) -> None:
    limits = ("--stall-check-warning-time-seconds", "1", "--stall-check-shutdown-time-seconds", "6")
    job = horovodrun(2, "-c", START + LOADS, flags=limits)
    assert job.code == 1, job.text
    told = re.findall(
        r"^horovodrun: others wait for rank 1 on host localhost \(pid \d+\); `horovodrun --stacks \d+`", job.err, re.MULTILINE
    )
    assert len(told) == 1, job.text  # though several warnings came
    assert "rank 1: [allreduce.w]" in job.err, job.text
    cause = re.search("^Probable cause: (.*)$", job.err, re.MULTILINE)
    assert cause, job.text
    assert cause[1].startswith('rank 1 did not submit "allreduce.w", for which others had waited for more than 6 s'), job.text
