"""The Spark job of a run() or run_elastic(): its tasks, on a thread of the driver."""

from __future__ import annotations

import contextlib
import queue
import subprocess
import time
from collections.abc import Callable
from types import TracebackType

from pyspark import InheritableThread, SparkContext

from horovod.spark._task import TaskHost

# What is started where tasks were lost ends by itself, and says why; it is told to, if it does not.
_GRACE_S = 5.0
# Until Spark has ended the tasks of a job that is over.
_LAST_TASK_S = 60.0
_AGAIN_S = 1.0
_MOST_SAID = 2000


class SparkTasks:
    """A context: its thread waits for begin(), runs one Spark job of `num_tasks` tasks in the job group `group`, and
    ends horovodrun when the job fails. At its end no task of it runs any more, unless Spark does not answer.

    `may_come_late`: some may not have run when all is over, and would wait for a horovodrun that has ended."""

    def __init__(
        self,
        context: SparkContext,
        group: str,
        num_tasks: int,
        host_of_task: Callable[[int], TaskHost],
        *,
        may_come_late: bool = False,
    ) -> None:
        self.error: BaseException | None = None
        self.has_ended_launcher = False  # which had not noticed that tasks are gone
        self._context = context
        self._group = group
        self._num_tasks = num_tasks
        self._last_task_s = _GRACE_S if may_come_late else _LAST_TASK_S
        self._host_of_task = host_of_task
        self._ports: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._launcher: subprocess.Popen[bytes] | None = None
        self._cancelled = False
        # Made here, so that it has the pool and other properties of the thread that calls run().
        self._thread = InheritableThread(target=self._work, name="hvd-spark-tasks", daemon=True)

    def __enter__(self) -> SparkTasks:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ports.put(None)
        if kind is None and not self._cancelled:
            self._thread.join(self._last_task_s)
        end = time.monotonic() + _LAST_TASK_S
        while self._thread.is_alive() and time.monotonic() < end:
            self.cancel()  # again and again: it may be about to begin
            self._thread.join(_AGAIN_S)

    def watch(self, launcher: subprocess.Popen[bytes]) -> None:
        """Requires: before begin()."""
        self._launcher = launcher

    def begin(self, port: int) -> None:
        """horovodrun waits there."""
        self._ports.put(port)

    def cancel(self) -> None:
        """Ends what still runs; what Spark says of that is no error."""
        self._cancelled = True
        with contextlib.suppress(Exception):  # the context may have been stopped
            self._context.cancelJobGroup(self._group)

    def running(self) -> int:
        """How many of the tasks Spark runs now, as far as it says; 0 where it does not answer any more."""
        try:
            return self._ask_running()
        except Exception:
            return 0

    def _ask_running(self) -> int:
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._group)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        return sum(stage.numActiveTasks for stage in stages if stage is not None)

    def reason(self) -> str:
        """Why Spark's job has failed, cut."""
        return str(self.error)[:_MOST_SAID]

    def _work(self) -> None:
        try:
            self._run_job()
        except BaseException as error:  # also one of ours: without tasks, the wait for them ends now
            if not self._cancelled:
                self.error = error
                self._end_launcher()

    def _run_job(self) -> None:
        port = self._ports.get()
        if port is None or self._cancelled:
            return
        self._context.setJobGroup(self._group, f"{self._num_tasks} ranks of Horovod", interruptOnCancel=True)
        numbers = self._context.parallelize(range(self._num_tasks), self._num_tasks)
        job = numbers.mapPartitionsWithIndex(self._host_of_task(port))
        if not self._cancelled:  # from here on, cancelling the group ends it
            job.collect()

    def _end_launcher(self) -> None:
        if self._launcher is None:
            return
        try:
            self._launcher.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self.has_ended_launcher = True
            self._launcher.terminate()
