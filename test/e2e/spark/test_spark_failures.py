"""Jobs on Spark that fail or are ended: who is named, and that no process is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from pyspark import SparkContext, SparkFiles
from spark_processes import Marks, ancestors, assert_gone, command_line, soon

import horovod.spark
from horovod.runner.common.util.timeout import TimeoutException

DRIVER = """
import os, signal, sys
from pyspark.sql import SparkSession
import horovod.spark

signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever started the tests ignores
session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
session.sparkContext.setLogLevel("FATAL")

def wait(folder):
    import os, pathlib, signal
    pathlib.Path(folder, "rank" + os.environ["HOROVOD_RANK"]).write_text(f"{os.getpid()}.")
    signal.pause()

try:
    horovod.spark.run(wait, (sys.argv[1],), num_proc=2)
finally:
    print("driver goes on", flush=True)
"""


class Waiting:
    """A job of ranks that wait, on a thread."""

    def __init__(self, folder: Path, ranks: int) -> None:
        self.error: BaseException | None = None
        self._folder = folder
        self._ranks = ranks
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self.pids = Marks(folder).wait_for(ranks)

    def _run(self) -> None:
        def wait(folder: str) -> None:
            import pathlib

            pathlib.Path(folder, "rank" + os.environ["HOROVOD_RANK"]).write_text(f"{os.getpid()}.")
            signal.pause()

        try:
            horovod.spark.run(wait, (str(self._folder),), num_proc=self._ranks)
        except BaseException as error:
            self.error = error

    def end(self) -> str:
        """What was raised, once the call has ended and no rank is left."""
        self._thread.join(60)
        assert not self._thread.is_alive()
        assert isinstance(self.error, RuntimeError), self.error
        assert_gone(self.pids)
        return str(self.error)


def group_of_active_job(spark: SparkContext) -> str:
    active = set(spark.statusTracker().getActiveJobsIds())
    groups = [f"horovod.spark.run.{number}" for number in range(100)]
    return next(group for group in groups if active & set(spark.statusTracker().getJobIdsForGroup(group)))


def test_the_exception_of_a_rank_is_the_cause_with_its_traceback(
    spark: SparkContext, capfd: pytest.CaptureFixture[str]
) -> None:
    def work() -> None:
        import torch

        import horovod.torch as hvd

        hvd.init()
        if hvd.rank() == 1:
            raise FileNotFoundError(2, "no such data", "train.csv")
        hvd.allreduce(torch.ones(1))

    message = r"rank 1 on host task-1\.\S+ \(pid \d+\) raised FileNotFoundError.*\nProcess name: 1\nExit code: 1"
    with pytest.raises(RuntimeError, match=message) as caught:
        horovod.spark.run(work, num_proc=2)
    cause = caught.value.__cause__
    assert isinstance(cause, FileNotFoundError)
    assert cause.filename == "train.csv"
    assert "in work" in str(cause.__cause__)
    assert "[1]<stderr>:FileNotFoundError" in capfd.readouterr().err
    assert horovod.spark.run(lambda: 1, num_proc=2) == [1, 1]


def test_a_killed_rank_is_named_with_its_host_and_exit_code(spark: SparkContext, tmp_path: Path) -> None:
    job = Waiting(tmp_path, 3)
    os.kill(job.pids[1], signal.SIGKILL)
    message = job.end()
    assert f"rank 1 on host task-1.{os.uname().nodename.partition('.')[0]} (pid {job.pids[1]}) was killed by" in message
    assert message.endswith("Process name: 1\nExit code: 137")
    soon(lambda: not list(spark.statusTracker().getActiveJobsIds()), "Spark's job is over")


def test_the_end_of_a_tasks_python_ends_the_job(spark: SparkContext, tmp_path: Path) -> None:
    job = Waiting(tmp_path, 2)
    above = ancestors(job.pids[1])
    worker = next(pid for pid in above if "pyspark.daemon" in command_line(pid))
    between = above[: above.index(worker)]
    assert "--join" in command_line(between[-1])
    os.kill(worker, signal.SIGKILL)
    assert "lost host task-1." in job.end()
    assert_gone(between)


def test_a_cancelled_job_group_ends_the_ranks(spark: SparkContext, tmp_path: Path) -> None:
    def files_of_tokens() -> set[Path]:
        folders = (Path(tempfile.gettempdir()), Path(SparkFiles.getRootDirectory()))
        return {file for folder in folders for name in ("hvd-token-*", "hvd-spark-*") for file in folder.rglob(name)}

    before = files_of_tokens()
    job = Waiting(tmp_path, 2)
    assert files_of_tokens() <= before  # none that a killed Python would leave
    spark.cancelJobGroup(group_of_active_job(spark))
    assert "cancelled" in job.end()
    assert files_of_tokens() <= before


def test_tasks_that_fail_before_they_have_come_end_the_wait(
    spark: SparkContext, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    missing = str(tmp_path / "there-is-no-such-python")
    with pytest.raises(RuntimeError, match=r"rank 0 .*exited with code 127"):
        horovod.spark.run(lambda: 1, num_proc=1, executable=missing)
    monkeypatch.setattr("horovod.spark._driver.address_for_tasks", lambda host: ("127.0.0.1", "localhost:1:"))
    with pytest.raises(RuntimeError, match=r"Spark has ended the tasks\nSpark says: [\s\S]*horovodrun: --join"):
        horovod.spark.run(lambda: 1, num_proc=2)
    monkeypatch.setattr("horovod.spark._driver.address_for_tasks", lambda host: ("127.0.0.2", "127.0.0.3"))
    wanted = r"after 5 s .* 0 of 2 Spark tasks have called in: Spark runs all of them, so they cannot reach .* 127\.0\.0\.3"
    with pytest.raises(TimeoutException, match=wanted):
        horovod.spark.run(lambda: 1, num_proc=2, start_timeout=5)


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_the_driver(tmp_path: Path, end: signal.Signals) -> None:
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    with subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as driver:
        try:
            pids = Marks(tmp_path).wait_for(2)
            pids += [pid for pid in ancestors(pids[0]) + ancestors(pids[1]) if "horovodrun" in command_line(pid)]
            assert len(pids) >= 6
            driver.send_signal(end)
            out, err = driver.communicate(timeout=60)
        finally:
            driver.kill()
    assert_gone(pids)
    if end == signal.SIGINT:
        assert out.endswith("driver goes on\n")
        assert err.rstrip().endswith("KeyboardInterrupt")
