"""How compute jobs on Spark end when no training job ends them, and that no process, thread or file is left."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
from pyspark import SparkContext
from spark_compute_jobs import MASTER, compute_job
from spark_processes import START_S, assert_gone, command_line, descendants, soon

from horovod.spark.tensorflow import compute_worker
from horovod.tensorflow.data.compute_service import TfDataServiceConfig

__all__ = ["MASTER"]  # for the fixture `spark`


class Serving:
    """main() on a thread, in the application of the tests."""

    def __init__(self, file: Path) -> None:
        self.error: BaseException | None = None
        self._file = file
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            compute_worker.main(1, "compute", str(self._file), 30)
        except BaseException as error:
            self.error = error

    def end(self) -> BaseException | None:
        """What was raised, once no thread of the service is left."""
        self._thread.join(START_S)
        assert not self._thread.is_alive()
        assert [thread.name for thread in threading.enumerate() if thread.name.startswith("hvd-compute")] == []
        return self.error


def cancel_active_jobs(spark: SparkContext) -> None:
    active = set(spark.statusTracker().getActiveJobsIds())
    for group in (f"horovod.spark.run.{number}" for number in range(100)):
        if active & set(spark.statusTracker().getJobIdsForGroup(group)):
            spark.cancelJobGroup(group)


def test_a_cancelled_job_group_ends_the_service(spark: SparkContext, tmp_path: Path) -> None:
    serving = Serving(tmp_path / "compute.json")
    soon((tmp_path / "compute.json").exists, "it serves", START_S)
    before = descendants(os.getpid())
    ranks = [pid for pid in before if "run_task" in command_line(pid) and "--" not in command_line(pid)]
    assert len(ranks) == 2
    config = TfDataServiceConfig.read(str(tmp_path / "compute.json"))
    config.compute_client()
    cancel_active_jobs(spark)
    error = serving.end()
    assert isinstance(error, RuntimeError)
    assert "cancelled" in str(error)
    assert_gone(ranks)
    with pytest.raises(ConnectionError):
        config.compute_client()


def test_a_job_that_spark_ends_before_its_ranks_run_writes_no_file(spark: SparkContext, tmp_path: Path) -> None:
    serving = Serving(tmp_path / "compute.json")
    soon(lambda: bool(list(spark.statusTracker().getActiveJobsIds())), "Spark has the job", START_S)
    cancel_active_jobs(spark)
    assert isinstance(serving.end(), RuntimeError)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_ends_the_job(
    spark: SparkContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: TfDataServiceConfig, filename: str) -> None:
        raise PermissionError(13, "no space for secrets", filename)

    monkeypatch.setattr(TfDataServiceConfig, "write", refuse)
    error = Serving(tmp_path / "compute.json").end()
    assert isinstance(error, PermissionError)


@pytest.mark.parametrize(
    ("end", "code", "submits"),
    [
        (signal.SIGTERM, 143, False),
        (signal.SIGINT, 130, False),
        (signal.SIGKILL, -signal.SIGKILL, False),
        (signal.SIGTERM, 143, True),
    ],
)
def test_no_process_outlives_the_driver(tmp_path: Path, end: signal.Signals, code: int, submits: bool) -> None:
    with compute_job(tmp_path, submits=submits) as job:
        assert len(job.pids) >= 10
        config = TfDataServiceConfig.read(str(job.file))
        job.driver.send_signal(end)
        assert job.end() == code, job.words.read_text()
        with pytest.raises(ConnectionError):
            config.compute_client()
        assert sorted(file.name for file in tmp_path.iterdir()) == ["compute.json", "spark", "words"]


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_a_driver_that_is_ended_while_spark_begins_leaves_no_process(tmp_path: Path, end: signal.Signals) -> None:
    with compute_job(tmp_path, waits=False) as job:
        jvm = lambda: any("java" in command_line(pid) for pid in descendants(job.driver.pid))  # noqa: E731
        soon(jvm, "Spark begins", START_S)
        job.pids = [job.driver.pid, *descendants(job.driver.pid)]
        job.driver.send_signal(end)
        assert job.end() == -end, job.words.read_text()
        assert not job.file.exists()
