"""The example for JAX does what its README says, with and without the launcher."""

from __future__ import annotations

import sys
from typing import Any

from jobs import ROOT, assert_learned, run_to_end

EXAMPLE = str(ROOT / "examples" / "jax_digits.py")
LAST_LINE = "jax: test accuracy _ (wanted 0.95); all {} ranks hold bitwise equal weights"


def test_digits_are_learned_on_two_ranks(horovodrun: Any) -> None:
    assert_learned(horovodrun(2, EXAMPLE, env={"OMP_NUM_THREADS": "1"}), LAST_LINE.format(2))


def test_digits_are_learned_without_a_launcher() -> None:
    assert_learned(run_to_end([sys.executable, EXAMPLE], env={"OMP_NUM_THREADS": "1"}), LAST_LINE.format(1))
