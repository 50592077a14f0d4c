"""horovod.spark.run_elastic() on two executors of two cores each, which are processes of this host."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from spark_processes import START_S, ancestors, assert_gone, command_line, soon

import horovod.spark
from horovod.runner.common.util.timeout import TimeoutException

MASTER = "local-cluster[2,2,1024]"


def train_until_told(folder: str) -> tuple[int, int]:
    """On a rank: says in each round who it is, until a file is there."""
    import pathlib

    import torch

    import horovod.torch as hvd

    hvd.init()
    state = hvd.elastic.TorchState(batch=0)

    @hvd.elastic.run
    def train(state: Any) -> tuple[int, int]:
        place = pathlib.Path(folder, f"pid{os.getpid()}")
        place.with_suffix(".new").write_text(f"{hvd.rank()} {hvd.size()}")
        place.with_suffix(".new").rename(place)
        is_over = False
        while not is_over:
            told = torch.tensor([pathlib.Path(folder, "stop").exists()], dtype=torch.int32)
            is_over = bool(hvd.allreduce(told, op=hvd.Max, name="told").item())
            state.batch += 1
            state.commit()
        return hvd.rank(), hvd.size()

    return train(state)


class Job:
    """A call of run_elastic() on a thread, and where its ranks stand."""

    def __init__(self, folder: Path, work: Callable[..., Any] = train_until_told, **arguments: Any) -> None:
        self.folder = folder
        self.result: Any = None
        self._thread = threading.Thread(target=self._run, args=(work, arguments))
        self._thread.start()

    def _run(self, work: Callable[..., Any], arguments: dict[str, Any]) -> None:
        try:
            self.result = horovod.spark.run_elastic(work, (str(self.folder),), **arguments)
        except BaseException as error:
            self.result = error

    def wait_for_size(self, size: int) -> list[int]:
        """The process ids of a round of so many ranks, in rank order, once all of them train."""
        found: dict[int, int] = {}

        def is_there() -> bool:
            found.clear()
            for file in self.folder.glob("pid*[0-9]"):
                pid = int(file.name.removeprefix("pid"))
                rank, of = map(int, file.read_text().split())
                if of == size and command_line(pid):
                    found[rank] = pid
            return sorted(found) == list(range(size)) or not self._thread.is_alive()

        soon(is_there, f"{size} ranks train", START_S)
        assert self._thread.is_alive(), self.result
        return [found[rank] for rank in range(size)]

    def end(self) -> Any:
        """What was returned or raised."""
        self._thread.join(90)
        assert not self._thread.is_alive()
        return self.result

    def stop(self) -> Any:
        (self.folder / "stop").touch()
        return self.end()


def executor_of(pid: int) -> int:
    return next(one for one in ancestors(pid) if "CoarseGrainedExecutorBackend" in command_line(one))


def test_ranks_tasks_and_executors_that_are_lost_come_back(spark: SparkContext, tmp_path: Path) -> None:
    job = Job(tmp_path, num_proc=2, min_num_proc=1, max_num_proc=3)
    ranks = job.wait_for_size(3)
    # A rank fails: it is started anew in its task.
    os.kill(ranks[1], signal.SIGKILL)
    soon(lambda: not command_line(ranks[1]), "it is gone")
    again = job.wait_for_size(3)
    assert set(again) > {ranks[0], ranks[2]}
    # The Python of a task ends: Spark runs the task again, and it calls in.
    victim = next(pid for pid in again if pid in (ranks[0], ranks[2]))
    worker = next(pid for pid in ancestors(victim) if "pyspark.daemon" in command_line(pid))
    os.kill(worker, signal.SIGKILL)
    soon(lambda: not command_line(victim), "it is gone")
    anew = job.wait_for_size(3)
    survivors = [pid for pid in again if pid != victim]
    assert set(anew) > set(survivors)
    # An executor is killed: the ranks of the other one go on, and Spark makes a new one.
    executors = {pid: executor_of(pid) for pid in anew}
    lost = executors[anew[-1]]
    left = [pid for pid in anew if executors[pid] != lost]
    assert left
    os.kill(lost, signal.SIGKILL)
    soon(lambda: not command_line(anew[-1]), "it is gone")
    assert set(job.wait_for_size(3)) > set(left)
    assert job.stop() == [(0, 3), (1, 3), (2, 3)]
    assert_gone([*ranks, *again, *anew])
    soon(lambda: not list(spark.statusTracker().getActiveJobsIds()), "Spark knows that its job is over")


def test_it_begins_with_fewer_tasks_than_there_may_be(spark: SparkContext, tmp_path: Path) -> None:
    job = Job(tmp_path, num_proc=2, max_num_proc=6)  # there are four cores
    job.wait_for_size(4)
    assert job.stop() == [(rank, 4) for rank in range(4)]
    soon(lambda: not list(spark.statusTracker().getActiveJobsIds()), "tasks that had no core wait no more")


def test_what_all_ranks_raise_and_a_cancelled_group_end_the_job(spark: SparkContext, tmp_path: Path) -> None:
    def fail(_folder: str) -> None:
        raise FileNotFoundError(2, "no such data", "train.csv")

    error = Job(tmp_path, fail, num_proc=2).end()
    assert isinstance(error, RuntimeError)
    assert "horovod.spark.run_elastic: rank " in str(error)
    assert "raised FileNotFoundError" in str(error)
    assert isinstance(error.__cause__, FileNotFoundError)

    job = Job(tmp_path, num_proc=2)
    ranks = job.wait_for_size(2)
    active = set(spark.statusTracker().getActiveJobsIds())
    groups = [f"horovod.spark.run_elastic.{number}" for number in range(100)]
    group = next(one for one in groups if active & set(spark.statusTracker().getJobIdsForGroup(one)))
    spark.cancelJobGroup(group)
    error = job.end()
    assert isinstance(error, RuntimeError)
    assert "cancelled" in str(error)
    assert_gone(ranks)


@pytest.mark.filterwarnings("ignore:.*is deprecated, use")
def test_bad_arguments_and_too_few_tasks_are_named(spark: SparkContext) -> None:
    for arguments, message in (
        ({"num_proc": 0}, "run_elastic: num_proc=0, expected a whole number from 1 on"),
        ({"num_proc": 2, "min_num_proc": 3}, "min_num_proc=3, num_proc=2 and max_num_proc=2, expected"),
        ({"num_proc": 2, "max_np": 1}, "min_num_proc=2, num_proc=2 and max_num_proc=1, expected"),
        ({"min_np": -1}, "min_num_proc=-1, expected a whole number from 1 on"),
        ({"elastic_timeout": 0}, "elastic_timeout=0, expected a number of seconds above 0"),
        ({"reset_limit": -1}, "reset_limit=-1, expected a whole number from 0 on"),
    ):
        with pytest.raises(ValueError, match=message):
            horovod.spark.run_elastic(lambda: 1, **arguments)
    wanted = r"run_elastic: after 10 s \(start_timeout\) \d of 9 Spark tasks have called in: Spark runs \d, "
    with pytest.raises(TimeoutException, match=wanted):
        horovod.spark.run_elastic(lambda: 1, num_proc=9, min_num_proc=1, start_timeout=10)
