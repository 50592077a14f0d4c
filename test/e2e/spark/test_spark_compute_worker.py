"""The tf.data service on Spark: a compute job of Spark tasks, training jobs that read through it, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark import SparkContext
from spark_processes import START_S, assert_gone, command_line, descendants, soon

import horovod.spark
from documented import undocumented
from horovod.spark.tensorflow import compute_worker
from horovod.tensorflow.data.compute_service import TfDataServiceConfig
from jobs import ROOT, Job, run_to_end, without

MASTER = "local[2]"
MODULE = "horovod.spark.tensorflow.compute_worker"
TRAINING = str(ROOT / "test" / "e2e" / "tensorflow" / "scripts" / "data_service_training.py")
SPARK_SUBMIT = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")


@pytest.fixture(autouse=True)
def quick_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test starts imports TensorFlow in two thirds of the time."""
    path = (without("jax", "sklearn"), os.environ.get("PYTHONPATH", ""))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)


class ComputeJob:
    """An application of its own, with two ranks, which serves when it is made."""

    def __init__(self, folder: Path, *arguments: str, submits: bool = False) -> None:
        self.file = folder / "compute.json"
        self.words = folder / "words"
        self.spark_files = folder / "spark"
        self.spark_files.mkdir()
        events = [f"spark.eventLog.dir={self.spark_files.as_uri()}", "spark.eventLog.enabled=true"]
        events += ["spark.eventLog.compress=false", "spark.ui.enabled=false", f"spark.local.dir={self.spark_files}"]
        options = ["--master", MASTER, *(word for setting in events for word in ("--conf", setting))]
        command = [sys.executable, "-m", MODULE]
        if submits:
            command = [SPARK_SUBMIT, *options, str(compute_worker.__file__)]
        env = {**os.environ, "PYSPARK_SUBMIT_ARGS": " ".join([*options, "pyspark-shell"])}
        with self.words.open("w") as words:
            self.driver = subprocess.Popen(
                [*command, str(self.file), *arguments],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
                start_new_session=True,
            )
        soon(lambda: self.file.exists() or self.driver.poll() is not None, "the compute job serves", START_S)
        assert self.file.exists(), self.words.read_text()
        self.pids = [self.driver.pid, *descendants(self.driver.pid)]

    def end(self) -> int:
        """The exit code, once nothing that the application has started runs any more."""
        code = self.driver.wait(90)
        assert_gone(self.pids)
        return code


@contextmanager
def compute_job(folder: Path, *arguments: str, submits: bool = False) -> Iterator[ComputeJob]:
    job = ComputeJob(folder, *arguments, submits=submits)
    try:
        yield job
    finally:
        if job.driver.poll() is None:
            os.killpg(job.driver.pid, signal.SIGKILL)
            job.driver.wait()


def train(horovodrun: Any, job: ComputeJob, ways: Sequence[str]) -> None:
    """Reads in each way, compares every element with what it has to be, and ends the compute job."""
    training: Job = horovodrun(2, TRAINING, str(job.file), *ways)
    assert training.code == 0, training.text + job.words.read_text()
    for way in ways:
        assert f"read by 2 ranks: {way}" in training.out
    assert job.end() == 0, job.words.read_text()


def places_of(key: str, job: ComputeJob) -> list[str]:
    """Where the key lies open: in what processes were given, in what Spark has written or what was said."""
    files = [Path(f"/proc/{pid}/{part}") for pid in job.pids for part in ("cmdline", "environ")]
    files += [job.words, *(file for file in job.spark_files.rglob("*") if file.is_file())]
    found = []
    for file in files:
        try:
            content = file.read_bytes()
        except OSError:  # it has ended
            continue
        if key.encode() in content or bytes.fromhex(key) in content:
            found.append(str(file))
    return found


def test_a_training_job_of_horovodrun_reads_everything(horovodrun: Any, tmp_path: Path) -> None:
    with compute_job(tmp_path) as job:
        assert job.file.stat().st_mode & 0o777 == 0o600
        key = TfDataServiceConfig.read(str(job.file)).to_dict()["key"]
        assert sum("horovodrun --join" in command_line(pid) for pid in job.pids) == 2
        assert places_of(key, job) == []
        train(horovodrun, job, ("own", "shared"))
        assert places_of(key, job) == []
        assert [log for log in job.spark_files.rglob("*") if log.is_file()], "nothing was searched for the key"
        assert sorted(file.name for file in tmp_path.iterdir()) == ["compute.json", "spark", "words"]


def test_spark_submit_runs_the_module_and_the_training_side_has_the_dispatchers(
    horovodrun: Any, tmp_path: Path
) -> None:
    arguments = ("--dispatchers", "2", "--dispatcher-side", "training")
    with compute_job(tmp_path, *arguments, submits=True) as job:
        train(horovodrun, job, ("training",))


def test_ranks_of_another_application_read_with_a_configuration_that_is_passed_on(
    spark: SparkContext, tmp_path: Path
) -> None:
    def read(config: TfDataServiceConfig) -> list[int]:
        import tensorflow as tf

        import horovod.tensorflow as hvd

        hvd.init()
        dataset = tf.data.Dataset.range(40).map(lambda row: row * 10)
        mine = [int(row) for row in dataset.send_to_data_service(config, hvd.rank(), hvd.size(), reuse_dataset=True)]
        everybodys: list[list[int]] = hvd.allgather_object(mine)
        if hvd.rank() == 0:
            config.compute_client().shutdown()
        return sorted(row for rows in everybodys for row in rows)

    with compute_job(tmp_path, "--dispatchers", "1", "--dispatcher-side", "compute") as job:
        config = TfDataServiceConfig.read(str(job.file))
        assert config.key.hex() not in repr(config)
        assert horovod.spark.run(read, (config,), num_proc=2) == [[10 * row for row in range(40)]] * 2
        assert job.end() == 0, job.words.read_text()


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


def test_wrong_arguments_are_named_before_anything_starts(
    spark: SparkContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(tmp_path / "compute.json")
    (tmp_path / "folder").mkdir()
    for arguments, kind, message in (
        ((3, "compute", file), ValueError, "the number of processes, 2, must be a multiple of that of dispatchers, 3"),
        ((0, "compute", file), ValueError, "multiple of that of dispatchers, 0"),
        ((1, "both", file), ValueError, "dispatcher_side must be 'training' or 'compute', got 'both'"),
        ((1, "compute", str(tmp_path / "none" / "compute.json")), FileNotFoundError, "none"),
        ((1, "compute", str(tmp_path / "folder")), IsADirectoryError, "is a folder, expected the name of a file"),
    ):
        with pytest.raises(kind, match=message):
            compute_worker.main(*arguments)
    assert [one.name for one in tmp_path.iterdir()] == ["folder"]
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    with pytest.raises(Exception, match=f"{MODULE}: there is no active SparkContext"):
        compute_worker.main(1, "compute", file)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--dispatchers", "0"), 2, "argument --dispatchers: 0 is less than 1"),
        (("--dispatcher-side", "both"), 2, "argument --dispatcher-side: invalid choice: 'both'"),
        (("--dispatchers", "3"), 1, "compute_worker: the number of processes, 2, must be a multiple of that of disp"),
    ],
)
def test_the_command_says_what_is_wrong(tmp_path: Path, arguments: tuple[str, ...], code: int, message: str) -> None:
    env = {"PYSPARK_SUBMIT_ARGS": f"--master {MASTER} --conf spark.ui.enabled=false pyspark-shell"}
    job = run_to_end([sys.executable, "-m", MODULE, str(tmp_path / "compute.json"), *arguments], env)
    assert job.code == code, job.text
    assert message in job.err
    assert "Traceback" not in job.err
    assert list(tmp_path.iterdir()) == []


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


def test_help_answers_for_every_public_name() -> None:
    assert undocumented(compute_worker) == []
