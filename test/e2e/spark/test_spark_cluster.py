"""horovod.spark.run() on two executors, which are processes of this host."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
from pyspark import SparkContext
from spark_processes import Marks, ancestors, assert_gone, command_line

import horovod.spark

MASTER = "local-cluster[2,1,1024]"


def test_ranks_of_two_executors_are_one_job_until_an_executor_dies(spark: SparkContext, tmp_path: Path) -> None:
    def work(folder: str) -> tuple[int, ...]:
        import pathlib

        import torch

        import horovod.torch as hvd

        hvd.init()
        total = int(hvd.allreduce(torch.ones(1), op=hvd.Sum).item())
        numbers = hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), total
        hvd.shutdown()
        if folder:
            pathlib.Path(folder, f"rank{numbers[0]}").write_text(f"{os.getpid()}.")
            signal.pause()
        return numbers

    assert horovod.spark.run(work, ("",), num_proc=2) == [(0, 2, 0, 2, 2), (1, 2, 1, 2, 2)]

    errors: list[BaseException] = []

    def run() -> None:
        try:
            horovod.spark.run(work, (str(tmp_path),), num_proc=2)
        except BaseException as error:
            errors.append(error)

    job = threading.Thread(target=run)
    job.start()
    pids = Marks(tmp_path).wait_for(2)
    above = [ancestors(pid) for pid in pids]
    executors = [next(pid for pid in line if "CoarseGrainedExecutorBackend" in command_line(pid)) for line in above]
    assert executors[0] != executors[1]
    below = [pid for line, executor in zip(above, executors, strict=True) for pid in line[: line.index(executor)]]
    os.kill(executors[1], signal.SIGKILL)
    job.join(90)
    assert not job.is_alive()
    assert_gone(pids + [pid for pid in below if "horovodrun" in command_line(pid)])
    with pytest.raises(RuntimeError, match=r"horovod\.spark\.run: the job failed with exit code 1: lost host task-1\."):
        raise errors[0]
