"""What the suite `jax` needs, Keras on JAX: whether it is here, and how a rank of it begins. See run.py, jax_rank.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

RANK = Path(__file__).resolve().parent / "jax_rank.py"
# As in a rank: JAX's own words where it cannot use a GPU, or, as in a Python without it, where there is none of it.
PROGRAM = "import jax, keras; jax.devices(); print(keras.backend.backend())"


def environment(device: str) -> dict[str, str]:
    return {
        "KERAS_BACKEND": "jax",
        "JAX_PLATFORMS": "cuda,cpu" if device == "cuda" else device,  # an error where JAX lacks one of them
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # else the first of two ranks on a GPU takes most of its memory
        "HOROVOD_TIMELINE": "DYNAMIC",  # one is started later
    }


def why_not(device: str) -> str:
    """Why it cannot run; nothing if it can."""
    words = {**os.environ, **environment(device)}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=words, check=False)
    if done.returncode == 0:
        return ""
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


def rank(device: str, mode: str, gpus: int) -> list[str]:
    return [sys.executable, str(RANK), device, mode, str(gpus)]
