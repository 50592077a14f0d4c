"""What `horovodrun --check` wants to know of a host, as one line of JSON: `python -m horovod --facts`.

Facts only: whether they are good is decided by the launcher, who sees all hosts (launcher/doctor/host_checks.cc). No
framework is imported: versions are those of the installed packages.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import horovod
from horovod._load import load_core

_PACKAGES = (
    "torch tensorflow tensorflow-cpu keras tf-keras jax jaxlib numpy nvidia-nccl-cu12 nvidia-nccl-cu13"
).split()
_TOOL_DEADLINE_S = 20
_SHARED_MEMORY = "/dev/shm"


def packages(names: list[str]) -> dict[str, str]:
    """The installed versions of those that are installed."""
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _core_error() -> str | None:
    try:
        load_core()
    except ImportError as error:
        return str(error)
    return None


def _available_memory() -> int:
    """Bytes that programs may still take, as the kernel reckons; 0 where it does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return int(fields.get("MemAvailable", "0 kB").split()[0]) * 1024


def _memory_limit() -> int | None:
    """Of the container or batch job, in bytes."""
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(path).read_text().strip()
        except OSError:
            continue
        if text.isdecimal() and int(text) < 1 << 60:  # version 1 says "none" by a very large number
            return int(text)
    return None


def _run(command: list[str]) -> tuple[int, str]:
    """Its exit code, and what it has printed. One that is too late is killed, not waited for: a driver may hold it."""
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        tool = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code = tool.wait(_TOOL_DEADLINE_S)
        except subprocess.TimeoutExpired:
            os.killpg(tool.pid, signal.SIGKILL)
            raise
        said.seek(0)
        return code, said.read()


def _gpus() -> tuple[list[str], str | None, str | None]:
    """Names, version of the driver, and why that cannot be told although there are GPUs."""
    if not any(Path("/dev").glob("nvidia[0-9]*")):
        return [], None, None
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return [], None, "/dev/nvidia* is there, but no nvidia-smi"
    query = [tool, "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        code, said = _run(query)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], None, str(error)
    if code != 0:
        return [], None, said.strip()[:300]
    rows = [line.rsplit(",", 1) for line in said.splitlines() if "," in line]
    return [name.strip() for name, _ in rows], rows[0][1].strip() if rows else None, None


def facts() -> str:
    """One line, whose keys the launcher knows."""
    gpus, driver, gpu_error = _gpus()
    shared = os.statvfs(_SHARED_MEMORY) if os.path.isdir(_SHARED_MEMORY) else None
    found = {
        "horovod": horovod.__version__,
        "core_error": _core_error(),
        "python": platform.python_version(),
        "packages": packages(_PACKAGES),
        "kernel": platform.release(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_available": _available_memory(),
        "memory_limit": _memory_limit(),
        "shm_free": shared.f_bavail * shared.f_frsize if shared else 0,
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "processes": resource.getrlimit(resource.RLIMIT_NPROC)[0],
        "locked_memory": resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
        "infiniband": os.path.isdir("/sys/class/infiniband") and bool(os.listdir("/sys/class/infiniband")),
        "gpus": gpus,
        "driver": driver,
        "gpu_error": gpu_error,
        "time": time.time(),  # last: the launcher compares it with the time at which it comes
    }
    return json.dumps(found)
