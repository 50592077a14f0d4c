"""Compute jobs of the tf.data service on Spark, each an application of its own."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from spark_processes import START_S, assert_gone, descendants, soon

from jobs import without

MASTER = "local[2]"
MODULE = "horovod.spark.tensorflow.compute_worker"
SPARK_SUBMIT = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")


def environment() -> dict[str, str]:
    """In which TensorFlow is imported in two thirds of the time."""
    path = (without("jax", "sklearn"), os.environ.get("PYTHONPATH", ""))
    return {"PYTHONPATH": os.pathsep.join(filter(None, path)), "PYSPARK_PYTHON": sys.executable}


def module_file() -> str:
    """What spark-submit takes."""
    spec = importlib.util.find_spec(MODULE)
    assert spec is not None
    return str(spec.origin)


class ComputeJob:
    """An application of its own, with two ranks."""

    def __init__(self, folder: Path, *arguments: str, submits: bool = False) -> None:
        self.pids: list[int] = []
        self.file = folder / "compute.json"
        self.words = folder / "words"
        self.spark_files = folder / "spark"
        self.spark_files.mkdir()
        events = [f"spark.eventLog.dir={self.spark_files.as_uri()}", "spark.eventLog.enabled=true"]
        events += ["spark.eventLog.compress=false", "spark.ui.enabled=false", f"spark.local.dir={self.spark_files}"]
        options = ["--master", MASTER, *(word for setting in events for word in ("--conf", setting))]
        command = [sys.executable, "-m", MODULE]
        if submits:
            command = [SPARK_SUBMIT, *options, module_file()]
        env = {**os.environ, **environment(), "PYSPARK_SUBMIT_ARGS": " ".join([*options, "pyspark-shell"])}
        with self.words.open("w") as words:
            self.driver = subprocess.Popen(
                [*command, str(self.file), *arguments],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
                start_new_session=True,
            )

    def wait_until_it_serves(self) -> None:
        soon(lambda: self.file.exists() or self.driver.poll() is not None, "the compute job serves", START_S)
        assert self.file.exists(), self.words.read_text()
        self.pids = [self.driver.pid, *descendants(self.driver.pid)]

    def end(self) -> int:
        """The exit code, once nothing that the application has started runs any more."""
        code = self.driver.wait(90)
        assert_gone(self.pids)
        return code


@contextmanager
def compute_job(folder: Path, *arguments: str, submits: bool = False, waits: bool = True) -> Iterator[ComputeJob]:
    """The job, which serves when the block begins if this `waits` for that."""
    job = ComputeJob(folder, *arguments, submits=submits)
    try:
        if waits:
            job.wait_until_it_serves()
        yield job
    finally:
        if job.driver.poll() is None:
            os.killpg(job.driver.pid, signal.SIGKILL)
            job.driver.wait()
