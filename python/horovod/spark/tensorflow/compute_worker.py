"""The compute job of a tf.data service on Spark: its ranks live in Spark tasks, its service in the driver.

    spark-submit .../horovod/spark/tensorflow/compute_worker.py compute.json
    PYSPARK_SUBMIT_ARGS="--master yarn pyspark-shell" python -m horovod.spark.tensorflow.compute_worker compute.json

A training job elsewhere reads the file. See docs/api/spark.md.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn

from pyspark import SparkContext

import horovod.spark
from horovod.runner.common.service.compute_service import ComputeService, TimeoutException
from horovod.spark._driver import active_context
from horovod.tensorflow.data._compute_job import argument_parser, compute_service, workers_of_each_dispatcher
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, compute_worker_fn

__all__ = ["main"]

_MODULE = "horovod.spark.tensorflow.compute_worker"
_BY_SIGNAL = 128  # and its number: the exit code, as in a shell


class _File:
    """A context that writes the configuration once the ranks run, so that who finds the file finds them.

    OSError at its end if it could not be written; the ranks have been told to end then.
    """

    def __init__(self, service: ComputeService, config: TfDataServiceConfig, configfile: str) -> None:
        self._service = service
        self._config = config
        self._configfile = configfile
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._work, name="hvd-compute-file", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._service.shutdown()  # ends the wait for ranks that have not come
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        if not self._service.wait_for_first_client():
            return
        try:
            self._config.write(self._configfile)
        except OSError as error:
            self._error = error
            with contextlib.suppress(ConnectionError):  # the job may be ending
                self._config.compute_client().shutdown()


def main(dispatchers: int, dispatcher_side: str, configfile: str, timeout: int = 60) -> None:
    """Serves data with `spark.default.parallelism` ranks, each in a task of the active SparkContext, until a client has
    called shutdown().

    The driver runs the compute service and writes `configfile` when all ranks run; it stays when they have ended.

    Args:
        dispatchers: Their number, of which the number of ranks must be a multiple.
        dispatcher_side: "compute" or "training", where they run.
        configfile: The file for the training job, in a folder of the driver's host that exists.
        timeout: How long one job waits for the other, in seconds.

    Raises:
        Exception: There is no active SparkContext.
        OSError: The file cannot be written.
        ValueError: An argument is not what it should be, or spark.speculation is on.
        RuntimeError, TimeoutException: As for horovod.spark.run(): a rank or Spark's job has failed, or the tasks were
            not started in time.
    """
    ranks = active_context(_MODULE).defaultParallelism
    workers = workers_of_each_dispatcher(ranks, dispatchers)
    _check_writable(configfile)
    with (
        compute_service(dispatchers, workers, dispatcher_side, timeout) as (service, config),
        _File(service, config, configfile),
    ):
        # The key goes as the function does, over the sealed connections of the ranks, and not through Spark.
        horovod.spark.run(compute_worker_fn, (config,), num_proc=ranks)


def _check_writable(configfile: str) -> None:
    """OSError now, rather than when Spark has started everything."""
    path = Path(configfile)
    if path.is_dir():
        raise IsADirectoryError(f"{configfile} is a folder, expected the name of a file to write")
    with tempfile.TemporaryFile(dir=path.parent):
        pass


def _begin_application() -> SparkContext:
    """The context of spark-submit, or a new one. Ctrl-C kills meanwhile, as SIGTERM does: Spark's JVM ends with this
    process then, but not after an exception in the middle of pyspark's wait for it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return SparkContext.getOrCreate()  # which raises KeyboardInterrupt from here on


@contextlib.contextmanager
def _end_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the block as an exception does, so that all that it has started ends; a second one kills."""

    def end(number: int, _frame: FrameType | None) -> NoReturn:
        signal.signal(number, signal.SIG_DFL)
        raise SystemExit(_BY_SIGNAL + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _run_command() -> None:
    given = argument_parser(_MODULE, (__doc__ or "").partition("\n")[0], "the driver").parse_args()
    try:
        with _begin_application(), _end_by_sigterm():
            main(given.dispatchers, given.dispatcher_side, given.configfile, given.timeout)
    except (OSError, ValueError, RuntimeError, TimeoutException) as error:
        sys.exit(f"compute_worker: {error}")
    except KeyboardInterrupt:
        sys.exit(_BY_SIGNAL + signal.SIGINT)


if __name__ == "__main__":
    _run_command()
