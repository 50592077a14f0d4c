"""How horovod.keras chooses, and what it imports to do so. Each in a process of its own."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from jobs import run_to_end

IMPORTED = "import sys, keras; before = set(sys.modules); import horovod.keras as hvd; print(sorted(set(sys.modules) - before))"


def run(program: str, backend: str) -> Any:
    return run_to_end([sys.executable, "-c", program], env={"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "2"})


@pytest.mark.parametrize(("backend", "other"), [("torch", "horovod.tensorflow"), ("jax", "horovod.torch")])
def test_only_what_serves_the_backend_is_imported(backend: str, other: str) -> None:
    job = run(IMPORTED, backend)
    assert job.code == 0, job.text
    assert f"'horovod._keras.{backend}'" in job.out
    assert "'horovod.tensorflow" not in job.out
    assert f"'{other}'" not in job.out


def test_tensorflow_is_served_as_before() -> None:
    job = run(
        "import horovod.keras as hvd, tensorflow as tf; hvd.init(); print(tf.is_tensor(hvd.allreduce(1.0)))",
        "tensorflow",
    )
    assert job.code == 0, job.text
    assert job.out.splitlines()[-1] == "True"


def test_a_backend_that_is_not_served_is_named() -> None:
    job = run("import horovod.keras", "numpy")
    assert job.code == 1
    assert "'numpy'" in job.err
    assert "tensorflow, torch, jax" in job.err
    assert "KERAS_BACKEND" in job.err


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_an_operation_before_init_says_so(backend: str) -> None:
    job = run("import horovod.keras as hvd; hvd.allreduce(1.0)", backend)
    assert job.code == 1
    assert "init()" in job.err.splitlines()[-1]


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_sessions_may_follow_one_another(backend: str) -> None:
    job = run(
        "import horovod.keras as hvd\nfor i in range(3):\n  hvd.init(); print(float(hvd.allreduce(2.0))); hvd.shutdown()",
        backend,
    )
    assert job.code == 0, job.text
    assert job.out.split() == ["2.0"] * 3
