"""The example for any backend of Keras does what its README says, on torch and on JAX."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest

from jobs import ROOT, run_to_end

pytestmark = pytest.mark.takes(95)

EXAMPLE = str(ROOT / "examples" / "keras_digits.py")


@pytest.fixture(autouse=True)
def quick_import() -> None:
    """scikit-learn has the images, and so is not hidden."""


def assert_trained(out: str, backend: str, ranks: int) -> None:
    pattern = rf"{backend}: test accuracy ([01]\.\d+) \(wanted 0\.95\); all {ranks} ranks hold bitwise equal weights"
    last = re.search(pattern, out.strip().splitlines()[-1])
    assert last, out
    assert float(last[1]) >= 0.95


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_digits_are_learned_on_two_ranks(horovodrun: Any, backend: str) -> None:
    job = horovodrun(2, EXAMPLE, env={"KERAS_BACKEND": backend, "OMP_NUM_THREADS": "1"})
    assert job.code == 0, job.text
    assert_trained(job.out, backend, 2)


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_digits_are_learned_without_a_launcher(backend: str) -> None:
    job = run_to_end([sys.executable, EXAMPLE], env={"KERAS_BACKEND": backend, "OMP_NUM_THREADS": "1"})
    assert job.code == 0, job.text
    assert_trained(job.out, backend, 1)
