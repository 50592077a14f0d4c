"""`python -m horovod` prints what a report of a problem needs: versions, what was found, and what was not, and why.

No framework is imported: versions are those of the installed packages.
"""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
from collections.abc import Iterator

import horovod
from horovod import _env, _facts, _routes
from horovod._function_job._caller import find_launcher
from horovod._load import load_core

_PACKAGES = (
    "torch tensorflow tensorflow-cpu keras tf-keras jax mxnet numpy cloudpickle mpi4py pyspark ray "
    "nvidia-nccl-cu12 nvidia-nccl-cu13"
).split()

# Theirs may be tokens, or names of hosts and people; that they are set is news enough.
_PRIVATE = ("SECRET", "TOKEN", "KEY", "AGENT", "HOSTNAME", "ADDR")
_LAUNCHER_DEADLINE_S = 10


def _core() -> str:
    try:
        core = load_core()
    except ImportError as error:
        return f"cannot be loaded: {error}"
    return f"{core.__file__}, with {core.gloo_library()}"


def _launcher() -> str:
    try:
        path = find_launcher()
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=_LAUNCHER_DEADLINE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    version = done.stdout.strip()
    matches = done.returncode == 0 and horovod.__version__ in version
    return f"{path}, {version or done.stderr.strip()}{'' if matches else ': not the version of this package'}"


def _limits() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    cores = len(os.sched_getaffinity(0))
    return f"{cores} of {os.cpu_count()} cores, {memory:.1f} GiB of memory, {files} open files"


def _variables() -> Iterator[tuple[str, str]]:
    for name, value in sorted(_env.all_with_prefix("HOROVOD_").items()):
        yield name, "(set)" if any(word in name for word in _PRIVATE) else value


def report() -> str:
    """The report as text, one fact a line."""
    libc = " ".join(platform.libc_ver())
    facts = [
        ("horovod", f"{horovod.__version__}, {os.path.dirname(horovod.__file__)}"),
        ("python", f"{platform.python_implementation()} {platform.python_version()}"),
        ("system", f"{platform.platform()}, {libc}"),
        ("machine", _limits()),
        ("core", _core()),
        ("horovodrun", _launcher()),
        *_facts.packages(_PACKAGES).items(),
        *_variables(),
    ]
    return "".join(f"{name}: {value}\n" for name, value in facts)


if __name__ == "__main__":
    if sys.argv[1:] == ["--routes"]:
        _routes.print_routes()
    else:
        print(_facts.facts() + "\n" if sys.argv[1:] == ["--facts"] else report(), end="")
