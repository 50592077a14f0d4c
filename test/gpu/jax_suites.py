"""What the suites on JAX need: whether it is here, and how a rank of them begins. See run.py.

`jax` is Keras on it (jax_rank.py), `jax collectives` is horovod.jax (jax_collectives.py).
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# As in a rank: JAX's own words where it cannot use a GPU, or, as in a Python without it, where there is none of it.
PROGRAM = "import {module}, jax, sys; jax.devices(sys.argv[1])"


def environment(device: str) -> dict[str, str]:
    return {
        "KERAS_BACKEND": "jax",
        "JAX_PLATFORMS": "cuda,cpu" if device == "cuda" else device,
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # else the first of two ranks on a GPU takes most of its memory
    }


@functools.cache
def why_not(device: str, module: str) -> str:
    """Why it cannot run; nothing if it can."""
    asked = [sys.executable, "-c", PROGRAM.format(module=module), device]
    done = subprocess.run(asked, capture_output=True, text=True, env={**os.environ, **environment(device)}, check=False)
    if done.returncode == 0:
        return ""
    # JAX only logs why its plugin for GPUs does not start, and ends with an error that says less.
    errors = [line.strip() for line in done.stderr.splitlines() if "rror" in line]
    return "; ".join(dict.fromkeys(errors))[-600:] or f"exit code {done.returncode}"


def run_keras(runs: Any, name: str, ranks: int, launcher: list[str], mode: str = "", **more: str) -> None:
    dynamic = {"HOROVOD_TIMELINE": "DYNAMIC", **more}  # one is started later
    _run(runs, name, ranks, [*launcher, sys.executable, str(HERE / "jax_rank.py")], "keras", mode, **dynamic)


def run_collectives(runs: Any, name: str, ranks: int, launcher: list[str], **more: str) -> None:
    test_settings = {
        "HVD_RANK_TESTS": "1",
        "HOROVOD_DYNAMIC_PROCESS_SETS": "1",
        "JAX_ENABLE_X64": "1",  # all types
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",  # compiling is most of the time
    }
    rank = [*launcher, sys.executable, str(HERE / "jax_collectives.py")]
    _run(runs, name, ranks, rank, "horovod.jax", **test_settings, **more)


def _run(runs: Any, name: str, ranks: int, rank: list[str], module: str, mode: str = "", **more: str) -> None:
    """`more`: of the environment; where it names GPUs, it names one."""
    if not runs.wants(name):
        return
    if words := why_not(runs.device, module):
        runs.leave_out(f"{name}, {mode}" if mode else name, ranks, words)
        return
    gpus = 1 if "CUDA_VISIBLE_DEVICES" in more else runs.gpus
    arguments = [runs.device, *([mode or "default"] if module == "keras" else []), str(gpus)]
    runs.run(name, ranks, [*rank, *arguments], mode, **environment(runs.device), **more)
