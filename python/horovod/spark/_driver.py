"""The driver's end of run() and run_elastic(): one Spark job whose tasks call in at one horovodrun.

    driver -> horovodrun --wait-for-hosts N    a child process, which listens for the tasks and starts the job
    driver -> Spark -> N tasks                 each a horovodrun --join, which holds one rank (_task.py); of an elastic
                                               job more than N, which may come later, and again when Spark retries them
    ranks  -> horovodrun -> driver             output, results and failures, as in horovod.run()

Spark carries the token by which tasks and horovodrun know each other, and the variables that the caller wants; the
function, its results, what ranks print and the job's secret go over the sealed connections of the tasks.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
import socket
from dataclasses import dataclass, field
from typing import Any, TextIO

from pyspark import SparkContext

from horovod import _env
from horovod._function_job._caller import command_of, run_function_job
from horovod.runner.common.util.timeout import TimeoutException
from horovod.spark._launcher_words import LauncherWords
from horovod.spark._spark_tasks import SparkTasks
from horovod.spark._task import TaskHost, command_in_task, token_pipe

_RUN = "horovod.spark.run"
_TLS = "HOROVOD_TLS"
_VERBOSE = 2  # from here on horovodrun's --verbose
_numbers = itertools.count()  # of the job groups of this process


@dataclass(frozen=True)
class ElasticPart:
    """What makes a job elastic."""

    min_num_proc: int | None
    max_num_proc: int | None
    timeout_s: int | None
    reset_limit: int | None


@dataclass(frozen=True)
class SparkJob:
    """What the caller wants, checked."""

    caller: str  # the function that was called, for messages
    num_proc: int | None
    start_timeout_s: int
    env: dict[str, str | None] = field(repr=False)
    nics: tuple[str, ...]
    verbose: int
    with_timestamp: bool
    stdout: TextIO | None
    stderr: TextIO | None
    executable: str | None = None
    elastic: ElasticPart | None = None


def run_spark_job(job: SparkJob, payload: bytes) -> list[Any]:
    """The results in rank order; see horovod.spark.run() for what it raises."""
    context = active_context(job.caller)
    num_proc = job.num_proc or context.defaultParallelism
    elastic = _elastic_args(job, num_proc)
    num_tasks = (job.elastic and job.elastic.max_num_proc) or num_proc
    if context.getConf().get("spark.speculation", "false") == "true":
        raise ValueError(
            f"{job.caller}: spark.speculation=true lets Spark start a second task for one that seems slow, and a rank "
            "cannot be there twice: set spark.speculation=false in this application"
        )
    token = secrets.token_hex(32)
    listen, host = address_for_tasks(str(context.getConf().get("spark.driver.host", socket.gethostname())))

    def host_of_task(port: int) -> TaskHost:
        return TaskHost(f"{host}:{port}", token, job.start_timeout_s, job.env)

    group = f"{job.caller}.{next(_numbers)}"
    tasks = SparkTasks(context, group, num_tasks, host_of_task, may_come_late=job.elastic is not None)
    words = LauncherWords(job.stderr, tasks.begin, shows_all=job.verbose >= _VERBOSE)
    with tasks, token_pipe(token) as token_file:
        try:
            return run_function_job(
                [
                    *_launcher_args(job, num_proc, listen, f"/dev/fd/{token_file}", has_tls=_has_tls(context, job)),
                    *elastic,
                ],
                command_in_task(job.executable, command_of("")[1:]),
                payload,
                caller=job.caller,
                stdout=job.stdout,
                stderr=words,
                on_start=tasks.watch,
                pass_fds=[token_file],
            )
        except RuntimeError as error:
            if words.come is not None:
                raise TimeoutException(_why_late(context, tasks, words, num_proc, job, host)) from None
            failure = error
            tasks.cancel()
    raise _explained(failure, job.caller, words, tasks)


def active_context(caller: str = _RUN) -> SparkContext:
    """Exception without one."""
    context = SparkContext._active_spark_context
    if context is None:
        raise Exception(f"{caller}: there is no active SparkContext; make one, or a SparkSession, before the call")
    return context


def _has_tls(context: SparkContext, job: SparkJob) -> bool:
    """Wherever it is turned on. --tls makes it so for horovodrun and for all ranks: those of whom one has it and the
    other not never meet."""
    wanted = (job.env.get(_TLS), context.getConf().get(f"spark.executorEnv.{_TLS}", None), _env.get(_TLS))
    return any(map(_env.says_yes, wanted))


def _launcher_args(job: SparkJob, num_proc: int, listen: str, token_file: str, *, has_tls: bool) -> list[str]:
    args = ["--num-proc", str(num_proc), "--wait-for-hosts", str(num_proc), "--listen", listen]
    args += ["--token-file", token_file, "--start-timeout", str(job.start_timeout_s), "--no-env"]
    if has_tls:
        args.append("--tls")
    if job.nics:
        args += ["--network-interfaces", ",".join(job.nics)]
    if job.verbose >= _VERBOSE:
        args.append("--verbose")
    if job.with_timestamp:
        args.append("--prefix-output-with-timestamp")
    return args


def _elastic_args(job: SparkJob, num_proc: int) -> list[str]:
    """Of horovodrun. A task is not given up for a rank that fails there: its rank is started anew, for a task that ends
    well is not run again by Spark."""
    wanted = job.elastic
    if wanted is None:
        return []
    least, most = wanted.min_num_proc or num_proc, wanted.max_num_proc or num_proc
    if not least <= num_proc <= most:
        raise ValueError(
            f"{job.caller}: min_num_proc={least}, num_proc={num_proc} and max_num_proc={most}, expected "
            "min_num_proc <= num_proc <= max_num_proc"
        )
    args = ["--min-np", str(least), "--max-np", str(most), "--slots-per-host", "1", "--blacklist", "none"]
    if wanted.timeout_s is not None:
        args += ["--elastic-timeout", str(wanted.timeout_s)]
    if wanted.reset_limit is not None:
        args += ["--reset-limit", str(wanted.reset_limit)]
    return args


def address_for_tasks(driver_host: str) -> tuple[str, str]:
    """Where to listen, and where tasks call: the address by which Spark's executors reach the driver. One that is not
    of this host, as that of a forwarded port, is called, and listened for on all addresses."""
    for kind, _, _, _, place in _addresses_of(driver_host):
        address = str(place[0])
        with contextlib.suppress(OSError), socket.socket(kind) as probe:
            probe.bind((address, 0))
            bracketed = f"[{address}]" if kind == socket.AF_INET6 else address
            return bracketed, bracketed
    return "0.0.0.0", driver_host


def _addresses_of(host: str) -> list[tuple[Any, ...]]:
    try:
        return list(socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM))
    except socket.gaierror as error:
        raise ValueError(f"horovod.spark: spark.driver.host={host} is not known on this host: {error}") from error


def _why_late(
    context: SparkContext, tasks: SparkTasks, words: LauncherWords, num_proc: int, job: SparkJob, host: str
) -> str:
    """Of tasks that have not called in in time."""
    running = tasks.running()
    # Those that have ended since make room, and Spark's count is late: so its cores must allow for all, too.
    if min(running, context.defaultParallelism) >= num_proc:
        reason = (
            f"Spark runs all of them, so they cannot reach the driver at {host} (spark.driver.host; a firewall?), or "
            "have only just begun (start_timeout)"
        )
    else:
        reason = (
            f"Spark runs {running}, and has spark.default.parallelism {context.defaultParallelism}. All {num_proc} "
            "must run at the same time: that takes as many free cores (spark.task.cpus for each task), and GPUs where "
            "tasks ask for them; what else the application runs counts, too"
        )
    unproven = f"; {words.last}" if words.last else ""
    return (
        f"{job.caller}: after {job.start_timeout_s} s (start_timeout) {words.come} of {num_proc} Spark tasks have "
        f"called in: {reason}{unproven}"
    )


def _explained(error: RuntimeError, caller: str, words: LauncherWords, tasks: SparkTasks) -> RuntimeError:
    """The error of the job with what Spark has to say."""
    if tasks.error is not None:
        placed = str(_placed(error, caller, words))
        what = f"{caller}: Spark has ended the tasks" if tasks.has_ended_launcher else placed
        explained = RuntimeError(f"{what}\nSpark says: {tasks.reason()}")
        explained.__cause__ = error.__cause__ or tasks.error
        return explained
    return _placed(error, caller, words)


def _placed(error: RuntimeError, caller: str, words: LauncherWords) -> RuntimeError:
    """With the host of the rank that failed first, or with why no rank was started."""
    text = str(error)
    if words.failed_rank:
        rank = words.failed_rank.partition(" on host")[0]
        placed = RuntimeError(text.replace(f"{caller}: {rank} ", f"{caller}: {words.failed_rank} ", 1))
    else:
        placed = RuntimeError(f"{text}: {words.last}" if text.endswith("standard error") and words.last else text)
    placed.__cause__ = error.__cause__
    return placed
