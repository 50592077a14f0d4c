"""`horovod.spark.run` and `run_elastic`: what they take, checked, and made into a job."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

from horovod._function_job._message import dump_task
from horovod.spark._checks import Checks
from horovod.spark._driver import ElasticPart, SparkJob, run_spark_job


def run(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int | None = None,
    start_timeout: float | None = None,
    use_mpi: bool | None = None,
    use_gloo: bool | None = None,
    extra_mpi_args: str | None = None,
    env: Mapping[str, str | None] | None = None,
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
    verbose: int | None = 1,
    nics: Sequence[str] | str | None = None,
    prefix_output_with_timestamp: bool = False,
    executable: str | None = None,
) -> list[Any]:
    """Calls `fn(*args, **kwargs)` on `num_proc` ranks, each in a Spark task of its own, and returns their results, a
    list in rank order.

    A rank is a new process beside its task's Python, and ends with it. Rank 0 is on the host of task 0, and the ranks
    of a host follow one another. This package has to be installed on the executors, in this version. The function and
    its results travel as in horovod.run(), not through Spark.

    Args:
        fn: The function; `args` and `kwargs` are for it. cloudpickle takes it, so it may be of a script or notebook.
        num_proc: The number of ranks; default: `spark.default.parallelism`, which Spark sets to the number of cores.
        start_timeout: Seconds to wait until Spark has started all tasks, rounded up; default:
            HOROVOD_SPARK_START_TIMEOUT, or 600.
        use_gloo: Accepted; there is nothing to decide.
        use_mpi: Must not be true: there is no MPI.
        extra_mpi_args: Ignored, with a warning, for the same reason.
        env: Variables of the ranks, on top of what their executor has; None removes one.
        stdout: Where the driver writes what ranks print, a text file or stream; default: sys.stdout.
        stderr: The same of standard error; default: sys.stderr.
        verbose: 2 and above: what is started where, and as what. None is 0.
        nics: The interfaces by which ranks reach each other, a list or a text with commas; default: those by which
            the tasks reach the driver.
        prefix_output_with_timestamp: A time stands before each line of output, too.
        executable: The Python of the ranks, on the executors; default: the one that runs the Spark task.

    Raises:
        Exception: There is no active SparkContext.
        TimeoutException: Of horovod.runner.common.util.timeout: not all tasks were started in time. Says how many were.
        RuntimeError: The job failed; has "Process name: <rank>" and "Exit code: <code>" of the rank that failed first,
            and that rank's exception as its `__cause__`; or Spark ended the tasks, and says why.
        TypeError, ValueError: An argument is not what it should be, or the function cannot be pickled.
    """
    check = Checks("horovod.spark.run")
    if use_mpi:
        raise ValueError(f"{check.caller}: use_mpi=True, but this build has no MPI; leave it out")
    if extra_mpi_args is not None:
        warnings.warn(f"{check.caller}: extra_mpi_args={extra_mpi_args!r} is ignored: there is no MPI", stacklevel=2)
    job = SparkJob(
        caller=check.caller,
        num_proc=check.whole_number("num_proc", num_proc),
        start_timeout_s=check.start_timeout(start_timeout),
        env=check.env(env or {}),
        nics=check.nics(nics),
        verbose=verbose or 0,
        with_timestamp=prefix_output_with_timestamp,
        executable=executable,
        stdout=check.stream("stdout", stdout),
        stderr=check.stream("stderr", stderr),
    )
    return run_spark_job(job, dump_task(fn, args, kwargs or {}, caller=check.caller))


def run_elastic(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int | None = None,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    start_timeout: float | None = None,
    elastic_timeout: float | None = None,
    reset_limit: int | None = None,
    env: Mapping[str, str | None] | None = None,
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
    verbose: int | None = 1,
    nics: Sequence[str] | str | None = None,
    prefix_output_with_timestamp: bool = False,
    min_np: int | None = None,
    max_np: int | None = None,
) -> list[Any]:
    """Calls `fn(*args, **kwargs)` on the ranks of an elastic job, each in a Spark task of its own, and returns the
    results of those that finished, the last round's ranks, a list in rank order.

    There are `max_num_proc` tasks. The job begins when `num_proc` of them run, and takes the others in as they come. A
    task that is lost, with its executor or by itself, is a lost rank: the others go on with an elastic state of
    `horovod.*.elastic`, and when Spark runs that task again, the rank is back. A rank that fails is started anew in its
    task. All else is as with run().

    Args:
        fn: As for run(), with `args` and `kwargs`. Every rank calls it once; so does one that comes later.
        num_proc: The ranks to begin with; default: `spark.default.parallelism`.
        min_num_proc: Below so many ranks the others wait; default: `num_proc`.
        max_num_proc: The number of Spark tasks, and the most ranks; default: `num_proc`.
        start_timeout: Seconds to wait until Spark has started `num_proc` tasks, rounded up; default:
            HOROVOD_SPARK_START_TIMEOUT, or 600.
        elastic_timeout: Seconds to wait for `min_num_proc` ranks later, rounded up; default:
            HOROVOD_ELASTIC_TIMEOUT, or 600.
        reset_limit: So often the job may begin a round anew; default: as often as it likes.
        env: As for run(), and so are `stdout`, `stderr`, `verbose`, `nics` and `prefix_output_with_timestamp`.
        min_np: The old name of `min_num_proc`.
        max_np: The old name of `max_num_proc`.

    Raises:
        Exception: There is no active SparkContext.
        TimeoutException: Of horovod.runner.common.util.timeout: fewer than `num_proc` tasks were started in time.
        RuntimeError: The job failed, as for run(), with "Process name: <host>[<local rank>]"; or Spark has ended the
            tasks, one of which has failed more often than `spark.task.maxFailures` allows.
        TypeError, ValueError: An argument is not what it should be, or the function cannot be pickled.
    """
    check = Checks("horovod.spark.run_elastic")
    for name, value in (("min_np", min_np), ("max_np", max_np)):
        if value is not None:
            new = name.replace("np", "num_proc")
            warnings.warn(f"{check.caller}: {name} is deprecated, use {new}", DeprecationWarning, stacklevel=2)
    elastic = ElasticPart(
        min_num_proc=check.whole_number("min_num_proc", min_num_proc if min_np is None else min_np),
        max_num_proc=check.whole_number("max_num_proc", max_num_proc if max_np is None else max_np),
        timeout_s=None if elastic_timeout is None else check.seconds("elastic_timeout", elastic_timeout),
        reset_limit=check.whole_number("reset_limit", reset_limit, least=0),
    )
    job = SparkJob(
        caller=check.caller,
        num_proc=check.whole_number("num_proc", num_proc),
        start_timeout_s=check.start_timeout(start_timeout),
        env=check.env(env or {}),
        nics=check.nics(nics),
        verbose=verbose or 0,
        with_timestamp=prefix_output_with_timestamp,
        stdout=check.stream("stdout", stdout),
        stderr=check.stream("stderr", stderr),
        elastic=elastic,
    )
    return run_spark_job(job, dump_task(fn, args, kwargs or {}, caller=check.caller))
