"""How horovod.keras chooses, and what it imports to do so. Each in a process of its own."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest

from jobs import run_to_end

PROGRAM = """
import sys, keras
before = set(sys.modules)
import horovod.keras as hvd
print(sorted(set(sys.modules) - before))
try:
    hvd.allreduce(1.0)
except Exception as error:
    print(type(error).__name__, error)
for i in range(3):
    hvd.init(); print(float(hvd.allreduce(2.0))); hvd.shutdown()
"""


def run(program: str, backend: str) -> Any:
    return run_to_end([sys.executable, "-c", program], env={"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "2"})


@pytest.mark.parametrize(("backend", "other"), [("torch", "horovod.tensorflow"), ("jax", "horovod.torch")])
def test_one_process_alone(backend: str, other: str) -> None:
    """Imports only what serves the backend; an operation before init() says so; sessions may follow one another."""
    job = run(PROGRAM, backend)
    assert job.code == 0, job.text
    imported, early, *sums = job.out.splitlines()
    assert f"'horovod._keras.{backend}'" in imported
    assert "'horovod.tensorflow" not in imported
    assert f"'{other}'" not in imported
    assert early == "HorovodInternalError Horovod has not been initialized; use hvd.init()."
    assert sums == ["2.0"] * 3


def test_a_program_without_init_ends_with_the_error() -> None:
    job = run("import horovod.keras as hvd; hvd.allreduce(1.0)", "torch")
    assert job.code == 1
    assert re.search(r"HorovodInternalError: .*init\(\)", job.err.splitlines()[-1])


def test_a_backend_that_is_not_served_is_named() -> None:
    job = run("import horovod.keras", "numpy")
    assert job.code == 1
    assert "'numpy'" in job.err
    assert "tensorflow, torch, jax" in job.err
    assert "KERAS_BACKEND" in job.err
