"""What runs in a Spark task: one host of the job, which calls in at the driver and holds one rank."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from pyspark import SparkFiles, TaskContext

from horovod import _env
from horovod._function_job._caller import find_launcher
from horovod.runner.common.util.host_hash import host_hash

# Of a rank, from its task.
WORK_DIR = "HOROVOD_SPARK_WORK_DIR"
PYTHON = "HVD_SPARK_PYTHON"
DEVICES = "HVD_SPARK_DEVICES"
_PYTHONPATH = "HOROVOD_SPARK_PYTHONPATH"

_LOOK_AT_PARENT_S = 1.0
_LONGER_THAN_DRIVER_S = 60
_MOST_S = 31536000  # that --start-timeout takes: a year
_MOST_SAID_BYTES = 4000


@dataclass(frozen=True)
class TaskHost:
    """Called by Spark with the number of a task. What it holds travels in Spark's closure."""

    address: str  # where the driver's horovodrun waits, HOST:PORT
    token: str = field(repr=False)  # 64 hexadecimal digits: who has them belongs to this job
    start_timeout_s: int
    env: Mapping[str, str | None] = field(repr=False)

    def __call__(self, index: int, _rows: Iterator[Any]) -> Iterator[int]:
        """Is over when the job is; RuntimeError says why this host could not be part of it."""
        host = _safe_label(socket.gethostname().partition(".")[0])
        self._be_host(index, host)
        yield index

    def _be_host(self, index: int, host: str) -> None:
        argv = [find_launcher(), "--join", self.address]
        argv += ["--host-name", f"{_task_name(index)}.{host}", "--node-name", node_name(_env.get("CONTAINER_ID"))]
        # Longer than the driver waits, who then knows that the tasks run, and ends them.
        argv += ["--start-timeout", str(min(self.start_timeout_s + _LONGER_THAN_DRIVER_S, _MOST_S))]
        argv += ["--end-with-parent", str(os.getpid())]
        with tempfile.TemporaryFile() as said:
            with token_pipe(self.token) as token:
                called = subprocess.Popen(
                    [*argv, "--token-file", f"/dev/fd/{token}"],
                    env=rank_environment(_env.all_with_prefix(""), self.env),
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=said,
                    pass_fds=[token],
                )
            code = _wait(called)
            if code != 0:
                raise RuntimeError(f"horovod.spark: task {index} on {host} ended with {code}: {_end_of(said)}")


def _task_name(index: int) -> str:
    """A name of its own for each time that Spark runs the task: who had the last one may not have ended yet."""
    context = TaskContext.get()
    attempt = context.attemptNumber() if context is not None else 0
    return f"task-{index}-{attempt}" if attempt else f"task-{index}"


@contextlib.contextmanager
def token_pipe(token: str) -> Iterator[int]:
    """A descriptor for --token-file of a horovodrun, which reads and closes it. No file is left, whatever is killed."""
    source, target = os.pipe()
    try:
        with os.fdopen(target, "w") as out:
            out.write(token)  # far less than a pipe holds
        yield source
    finally:
        os.close(source)


def _wait(called: subprocess.Popen[bytes]) -> int:
    """The exit code. What started this Python may go without ending it: that ends the host, too."""
    parent = os.getppid()
    try:
        while True:
            try:
                return called.wait(_LOOK_AT_PARENT_S)
            except subprocess.TimeoutExpired:
                if os.getppid() != parent:
                    called.terminate()
    except BaseException:
        called.terminate()
        called.wait()  # it ends what it has started, within its own deadlines
        raise


def _end_of(said: BinaryIO) -> str:
    size = said.seek(0, os.SEEK_END)
    said.seek(max(0, size - _MOST_SAID_BYTES))
    return said.read().decode(errors="replace").strip() or "it said nothing"


def _safe_label(text: str) -> str:
    """As a host of the job may be called."""
    return re.sub(r"[^A-Za-z0-9-]", "-", text)[:24].strip("-") or "host"


def node_name(container_id: str | None) -> str:
    """The same for tasks whose ranks share local numbers: those of one host, and of one of YARN's containers on it."""
    name, _, digest = host_hash(container_id).rpartition("-")
    return f"{_safe_label(name)}-{digest}"


def rank_environment(own: Mapping[str, str], wanted: Mapping[str, str | None]) -> dict[str, str]:
    """The variables of a task's rank: the executor's, those that the caller wants, and what the task knows."""
    variables = dict(own)
    for name, value in wanted.items():
        if value is None:
            variables.pop(name, None)
        else:
            variables[name] = value
    path = [variables.get(_PYTHONPATH, ""), variables.get("PYTHONPATH", ""), *_files_of_spark()]
    # Relative ones, as Spark's own ".", are of the task's folder, and the rank may begin in another (WORK_DIR).
    entries = [entry for part in path for entry in part.split(os.pathsep) if entry]
    variables["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, entries))
    variables.setdefault(WORK_DIR, os.getcwd())
    variables[PYTHON] = sys.executable
    variables[DEVICES] = ",".join(_devices_of_task())
    return variables


def _files_of_spark() -> list[str]:
    """Where SparkContext.addPyFile() has put modules."""
    if TaskContext.get() is None:
        return []
    root = SparkFiles.getRootDirectory()
    return [entry for entry in sys.path if entry == root or entry.startswith(root + os.sep)]


def _devices_of_task() -> list[str]:
    """The addresses of the GPUs that Spark has assigned to the task of this process."""
    context = TaskContext.get()
    gpu = context.resources().get("gpu") if context is not None else None
    return list(gpu.addresses) if gpu is not None else []


def command_in_task(executable: str | None, rest: list[str]) -> list[str]:
    """Begins in the task's folder, where relative names are those of files that Spark has brought."""
    python = "$0" if executable else f"${PYTHON}"
    script = f'cd -- "${WORK_DIR}" && exec "{python}" "$@"'
    return ["/bin/sh", "-c", script, executable or "python", *rest]
