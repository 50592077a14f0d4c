"""The tf.data service on Spark: a compute job of Spark tasks, training jobs that read through it, wrong arguments."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from spark_compute_jobs import MASTER, MODULE, ComputeJob, compute_job, environment
from spark_processes import command_line

import horovod.spark
from documented import undocumented
from horovod.spark.tensorflow import compute_worker
from horovod.tensorflow.data.compute_service import TfDataServiceConfig
from jobs import ROOT, Job, run_to_end

TRAINING = str(ROOT / "test" / "e2e" / "tensorflow" / "scripts" / "data_service_training.py")


def train(horovodrun: Any, job: ComputeJob, ways: Sequence[str]) -> None:
    """Reads in each way, compares every element with what it has to be, and ends the compute job."""
    training: Job = horovodrun(2, TRAINING, str(job.file), *ways, env=environment())
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
    env = {**environment(), "PYSPARK_SUBMIT_ARGS": f"--master {MASTER} --conf spark.ui.enabled=false pyspark-shell"}
    job = run_to_end([sys.executable, "-m", MODULE, str(tmp_path / "compute.json"), *arguments], env)
    assert job.code == code, job.text
    assert message in job.err
    assert "Traceback" not in job.err
    assert list(tmp_path.iterdir()) == []


def test_help_answers_for_every_public_name() -> None:
    assert undocumented(compute_worker) == []
