"""What the suite `jax` needs, Keras on JAX: whether it is here, and how a rank of it begins. See run.py, jax_rank.py."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

RANK = Path(__file__).resolve().parent / "jax_rank.py"
# As in a rank: JAX's own words where it cannot use a GPU, or, as in a Python without it, where there is none of it.
PROGRAM = "import jax, keras, sys; jax.devices(sys.argv[1])"


def environment(device: str) -> dict[str, str]:
    return {
        "KERAS_BACKEND": "jax",
        "JAX_PLATFORMS": "cuda,cpu" if device == "cuda" else device,
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # else the first of two ranks on a GPU takes most of its memory
        "HOROVOD_TIMELINE": "DYNAMIC",  # one is started later
    }


@functools.cache
def why_not(device: str) -> str:
    """Why it cannot run; nothing if it can."""
    asked, words = [sys.executable, "-c", PROGRAM, device], {**os.environ, **environment(device)}
    done = subprocess.run(asked, capture_output=True, text=True, env=words, check=False)
    if done.returncode == 0:
        return ""
    # JAX only logs why its plugin for GPUs does not start, and ends with an error that says less.
    errors = [line.strip() for line in done.stderr.splitlines() if "rror" in line]
    return "; ".join(dict.fromkeys(errors))[-600:] or f"exit code {done.returncode}"


def run(runs: Any, name: str, ranks: int, launcher: list[str], mode: str = "", **more: str) -> None:
    """One suite of `runs` (run.py). `more`: of its environment; where that names GPUs, one."""
    if not runs.wants(name):
        return
    if words := why_not(runs.device):
        runs.leave_out(f"{name}, {mode}" if mode else name, ranks, words)
        return
    gpus = 1 if "CUDA_VISIBLE_DEVICES" in more else runs.gpus
    rank = [sys.executable, str(RANK), runs.device, mode or "default", str(gpus)]
    runs.run(name, ranks, [*launcher, *rank], mode, **environment(runs.device), **more)
