"""What can be measured, one function each; every function runs programs and returns plain data."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# Longest time for any single program; a benchmark that hangs is a bug and shall say so.
LIMIT_S = 900


class BenchError(Exception):
    """A program failed; the message holds its command and the end of its output."""


@dataclass(frozen=True)
class Programs:
    """Where the things to measure are."""

    allreduce_bench: Path
    calibrate: Path
    horovodrun: Path
    python: Path

    @staticmethod
    def find(build: Path, needs_cpp: bool) -> Programs:
        """`needs_cpp`: whether a part runs that bench/cpp is built for."""
        found = Programs(
            build / "bench/cpp/allreduce_bench",
            build / "bench/cpp/calibrate",
            Path(sys.executable).with_name("horovodrun"),
            Path(sys.executable),
        )
        for path in (found.allreduce_bench, found.calibrate, found.horovodrun):
            if not path.exists() and (path == found.horovodrun or needs_cpp):
                raise BenchError(f"{path} is missing; run `make bench`, which builds and installs what is needed")
        return found


def run(command: list[str]) -> tuple[str, float]:
    """Output and seconds of one program that must succeed."""
    start = time.perf_counter()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise BenchError(f"{' '.join(command)}: no end after {LIMIT_S} s") from None
    seconds = time.perf_counter() - start
    if done.returncode != 0:
        tail = (done.stdout + done.stderr)[-2000:]
        raise BenchError(f"{' '.join(command)}: exit code {done.returncode}\n{tail}")
    return done.stdout, seconds


def calibration(programs: Programs) -> dict[str, Any]:
    out, _ = run([str(programs.calibrate)])
    return dict(json.loads(out))


def real_time() -> list[str]:
    """What starts a program whose times shall not depend on what else runs here; nothing where it is not allowed."""
    command = ["chrt", "-f", "1"]
    if not shutil.which("chrt") or subprocess.run([*command, "true"], capture_output=True, check=False).returncode != 0:
        return []
    return command


def _text(sizes: list[int]) -> str:
    return ",".join(map(str, sizes))


def _by_size(output: str) -> list[dict[str, Any]]:
    """What allreduce_bench printed, one entry a size: us by arm."""
    found: dict[int, dict[str, Any]] = {}
    for line in output.splitlines():
        row = json.loads(line)
        entry = found.setdefault(row["size"], {"size": row["size"], "np": row["np"]})
        for kind in ("p50_us", "min_us", "whole_us"):
            entry.setdefault(kind, {})[row["arm"]] = row[kind]
    return list(found.values())


def cpp_allreduce(programs: Programs, np: int, sizes: list[int], seconds: float) -> list[dict[str, Any]]:
    """Ours, also with TLS, stock Gloo and the bound, in turns in the same processes. One entry a size: us by arm."""
    command = [str(programs.allreduce_bench), "--np", str(np), "--arms", "ours,ours_tls,stock,bound"]
    command += ["--seconds", str(seconds), "--sizes", _text(sizes)]
    out, _ = run(command)
    return _by_size(out)


SHARED_ARMS = ["ours_shared", "in_place", "parts", "ours_staged", "nothing"]
MPIS = {"open_mpi": "mpirun.openmpi", "mpich": "mpirun.mpich"}


def mpis(np: int) -> list[str]:
    """Those that are installed; "" where none is. MPICH's ranks poll and never yield: each needs a core of its own."""
    found = [name for name, starter in MPIS.items() if shutil.which(starter)]
    return [name for name in found if name != "mpich" or np <= len(os.sched_getaffinity(0))] or [""]


def shared_memory(programs: Programs, np: int, sizes: list[int], seconds: float, mpi: str) -> list[dict[str, Any]]:
    """Allreduces in shared memory beside what they take at best, and beside one MPI, in turns in the same processes."""
    bind = {"open_mpi": ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"], "mpich": []}
    arms = [*SHARED_ARMS, *([mpi] if mpi else [])]
    bench = [*real_time(), str(programs.allreduce_bench), "--np", str(np), "--arms", ",".join(arms)]
    bench += ["--seconds", str(seconds), "--sizes", _text(sizes)]
    if not mpi:
        return _by_size(run(bench)[0])
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        return _by_size(run([MPIS[mpi], *bind[mpi], "-np", str(np), *bench, "--meet", f"{directory}/ranks"])[0])


def exchanged_us(programs: Programs, np: int, seconds: float) -> float:
    """An allreduce of 4 bytes that two polling callers exchange in shared memory."""
    bench = [*real_time(), str(programs.allreduce_bench), "--np", str(np), "--arms", "ours_exchanged", "--sizes", "4"]
    return float(_by_size(run([*bench, "--seconds", str(seconds)])[0])[0]["p50_us"]["ours_exchanged"])


def _job(
    programs: Programs,
    np: int,
    script: str,
    *arguments: str,
    starter: list[str] | None = None,
    prefix: list[str] | None = None,
) -> dict[str, Any]:
    """What rank 0 of a job of bench/ranks/`script` measured. `starter`: what starts the ranks in horovodrun's place;
    `prefix`: what each rank's command begins with.
    """
    with tempfile.TemporaryDirectory() as directory:
        rank = [*(prefix or []), str(programs.python), str(HERE / "ranks" / script), directory, *arguments]
        run([*(starter or [str(programs.horovodrun)]), "-np", str(np), *rank])
        return dict(json.loads(Path(directory, "result.json").read_text()))


def python_allreduce(programs: Programs, np: int, seconds: float, sizes: list[int]) -> dict[str, Any]:
    """Ours and torch.distributed's gloo through Python, in turns in the same processes."""
    return _job(programs, np, "allreduce.py", str(seconds), _text(sizes))


def small_calls(programs: Programs, np: int) -> dict[str, Any]:
    """Blocking allreduces of 4 bytes through Python, ours and torch's gloo: us by what lies between calls."""
    return _job(programs, np, "small_calls.py", prefix=real_time())


def negotiation(programs: Programs, np: int, seconds: float, count: int, capacity: int) -> dict[str, Any]:
    """So many cached allreduces of 4 bytes, as one group and one by one."""
    prefix = [*real_time(), "env", f"HOROVOD_CACHE_CAPACITY={capacity}"]
    return _job(programs, np, "negotiation.py", str(seconds), str(count), prefix=prefix)


MEMORY_WAYS = ["local", "ours", "local_kept", "ours_views", "held", "exchanged"]


def memory_mb(programs: Programs, np: int) -> dict[str, Any]:
    """Of a rank with the gradients of a ResNet-50, by how it trains."""
    return {way: _job(programs, np, "memory.py", way) for way in MEMORY_WAYS}


def open_mpi_missing() -> str:
    """Why open_mpi_allreduce() cannot run here; empty if it can."""
    if not shutil.which("mpirun"):
        return "mpirun is not installed"
    return "" if importlib.util.find_spec("mpi4py") else "the package mpi4py is not installed"


def open_mpi_allreduce(programs: Programs, np: int, seconds: float, sizes: list[int]) -> dict[str, Any]:
    """Ours, torch's gloo and Open MPI through Python, in turns in the same processes, which mpirun starts."""
    # mpirun refuses to run as root, as in containers, and to start more ranks than cores, unless it is told.
    starter = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
    return _job(programs, np, "allreduce.py", str(seconds), _text(sizes), starter=starter)


def default_call(programs: Programs, np: int, seconds: float, sizes: list[int]) -> dict[str, Any]:
    """hvd.allreduce(x) and its kin beside the sum in place: wall and processor time, and page faults."""
    return _job(programs, np, "default_call.py", str(seconds), _text(sizes))


def training_steps(programs: Programs, np: int, seconds: float) -> dict[str, Any]:
    """Steps of an optimizer alone, with our DistributedOptimizer, and in torch's DDP, call by call."""
    return _job(programs, np, "resnet50_gradients.py", str(seconds))


def tensorflow_steps(programs: Programs, np: int, seconds: float) -> dict[str, Any]:
    """Allreduces and training steps in a tf.function beside the same through horovod.torch."""
    return _job(programs, np, "tensorflow_steps.py", str(seconds))


def init_ms(programs: Programs, np: int) -> float:
    """From the last rank's entry into hvd.init() to the last one's return."""
    with tempfile.TemporaryDirectory() as directory:
        script = str(HERE / "ranks/init_time.py")
        run([str(programs.horovodrun), "-np", str(np), str(programs.python), script, directory])
        times = [json.loads(Path(directory, f"{rank}.json").read_text()) for rank in range(np)]
    return float(max(t["returned"] for t in times) - max(t["entered"] for t in times)) / 1e6


def launch_s(programs: Programs, np: int) -> float:
    """A whole job that only calls init()."""
    code = "import torch, horovod.torch as h; h.init()"
    return run([str(programs.horovodrun), "-np", str(np), str(programs.python), "-c", code])[1]


def bare_imports_s(programs: Programs, count: int) -> float:
    """As many processes at once that only import torch: what a job cannot be faster than."""
    start = time.perf_counter()
    processes = [subprocess.Popen([str(programs.python), "-c", "import torch"]) for _ in range(count)]
    codes = [p.wait(LIMIT_S) for p in processes]
    if any(codes):
        raise BenchError(f"python -c 'import torch': exit codes {codes}")
    return time.perf_counter() - start


def version_s(programs: Programs) -> float:
    return statistics.median(run([str(programs.horovodrun), "--version"])[1] for _ in range(20))
