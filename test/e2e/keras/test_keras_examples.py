"""The example for any backend of Keras does what its README says, on torch and on JAX."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from jobs import ROOT, assert_learned, run_to_end

pytestmark = pytest.mark.takes(95)

EXAMPLE = str(ROOT / "examples" / "keras_digits.py")
LAST_LINE = "{}: test accuracy _ (wanted 0.95); all {} ranks hold bitwise equal weights"


@pytest.fixture(autouse=True)
def quick_import() -> None:
    """scikit-learn has the images, and so is not hidden."""


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_digits_are_learned_on_two_ranks(horovodrun: Any, backend: str) -> None:
    job = horovodrun(2, EXAMPLE, env={"KERAS_BACKEND": backend, "OMP_NUM_THREADS": "1"})
    assert_learned(job, LAST_LINE.format(backend, 2))


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_digits_are_learned_without_a_launcher(backend: str) -> None:
    job = run_to_end([sys.executable, EXAMPLE], env={"KERAS_BACKEND": backend, "OMP_NUM_THREADS": "1"})
    assert_learned(job, LAST_LINE.format(backend, 1))
