#!/usr/bin/env python3
"""What starting and watching a job costs: the launcher's own figures, without a framework.

    python bench/starts.py [--repeat 20]

Processor times hold on a busy machine, too; the others want a quiet one: the shortest and the median are printed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(sys.executable).parent
LAUNCHER = str(HERE / "horovodrun")
IDLE_S = 10.0  # for how long an idle job is watched
START_DEADLINE_S = 60.0

# One rank: enters init() when all others are about to, as far as files in a folder tell.
RANK = """
import os, pathlib, sys, time
from horovod._common.native import core
folder = pathlib.Path(sys.argv[1])
me = os.environ["OMPI_COMM_WORLD_RANK"]
entered = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
core.init()
returned = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
(folder / me).write_text(f"{entered} {returned}")
core.shutdown()
core.leave_job()
"""


def seconds_of(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def print_times(what: str, goal: str, repeat: int, measure: Callable[[], float]) -> None:
    times = [1000 * measure() for _ in range(repeat)]
    print(
        f"{what}: {min(times):.1f} ms at least, {statistics.median(times):.1f} in the median; goal {goal}", flush=True
    )


def descendants(pid: int) -> set[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {pid}.union(*(descendants(int(child)) for child in children))


def ours(pid: int) -> set[int]:
    """Launcher, guard and agent of a local job, without its ranks."""
    return {p for p in descendants(pid) if Path(f"/proc/{p}/comm").read_text().startswith(("horovodrun", "hvd-"))}


def processor_seconds(pids: set[int]) -> float:
    threads = [task for pid in pids for task in Path(f"/proc/{pid}/task").iterdir()]
    return sum(int((task / "schedstat").read_text().split()[0]) for task in threads) / 1e9


@contextmanager
def idle_job(ranks: int) -> Iterator[int]:
    """The launcher's pid, once all ranks sleep."""
    job = subprocess.Popen([LAUNCHER, "-np", str(ranks), "sleep", "600"], stdin=subprocess.DEVNULL)
    end = time.monotonic() + START_DEADLINE_S
    try:
        while sum(Path(f"/proc/{p}/comm").read_text() == "sleep\n" for p in descendants(job.pid)) < ranks:
            if job.poll() is not None:
                raise SystemExit(f"the job ended with {job.returncode}")
            if time.monotonic() > end:
                raise SystemExit(f"not all of {ranks} ranks had started after {START_DEADLINE_S:g} s")
            time.sleep(0.05)
        yield job.pid
    finally:
        job.terminate()
        job.wait()


def print_supervision() -> None:
    with idle_job(8) as pid:
        time.sleep(1)
        processes = ours(pid)
        before = processor_seconds(processes)
        time.sleep(IDLE_S)
        share = (processor_seconds(processes) - before) / IDLE_S
    print(f"supervision of 8 idle ranks: {100 * share:.3f} % of one core in {len(processes)} processes; goal < 0.5 %")


def print_memory() -> None:
    with idle_job(64) as pid:
        for process in sorted(ours(pid)):
            status = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
            most = int(status["VmHWM"].split()[0]) / 1024
            print(f"memory at 64 ranks: {most:.1f} MiB at most in {status['Name'].strip()}; goal 30 in the launcher")


def init_under_mpirun() -> float:
    """From the last rank's entry to the last return."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "8", sys.executable, "-c", RANK, folder]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        rows = [file.read_text().split() for file in Path(folder).iterdir()]
        if len(rows) != 8:
            raise SystemExit(f"{len(rows)} of 8 ranks have written their times")
        return (max(int(row[1]) for row in rows) - max(int(row[0]) for row in rows)) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=20, help="how often what takes time is measured")
    repeat = parser.parse_args().repeat
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # or each job says what it has chosen
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print_times("--version", "20 ms", repeat, lambda: seconds_of([LAUNCHER, "--version"]))
    print_times("-np 8 true", "150 ms", repeat, lambda: seconds_of([LAUNCHER, "-np", "8", "true"]))
    python = [LAUNCHER, "-np", "8", sys.executable, "-S", "-c", "pass"]
    print_times("-np 8 python -S -c pass", "150 ms", repeat, lambda: seconds_of(python))
    print_supervision()
    print_memory()
    if shutil.which("mpirun"):
        print_times("init() of 8 ranks under mpirun", "500 ms", min(repeat, 5), init_under_mpirun)
    print(f"load {os.getloadavg()[0]:.1f}")


main()
