"""The example for JAX does what its README says, with and without the launcher."""

from __future__ import annotations

import re
import sys
from typing import Any

from jobs import ROOT, run_to_end

EXAMPLE = str(ROOT / "examples" / "jax_digits.py")


def assert_trained(job: Any, ranks: int) -> None:
    assert job.code == 0, job.text
    pattern = rf"jax: test accuracy ([01]\.\d+) \(wanted 0\.95\); all {ranks} ranks hold bitwise equal weights"
    last = re.search(pattern, job.out.strip().splitlines()[-1])
    assert last, job.text
    assert float(last[1]) >= 0.95


def test_digits_are_learned_on_two_ranks(horovodrun: Any) -> None:
    assert_trained(horovodrun(2, EXAMPLE, env={"OMP_NUM_THREADS": "1"}), 2)


def test_digits_are_learned_without_a_launcher() -> None:
    assert_trained(run_to_end([sys.executable, EXAMPLE], env={"OMP_NUM_THREADS": "1"}), 1)
