"""The example for Ray does what its README says, as a static and as an elastic job."""

from __future__ import annotations

import re
import sys

import pytest

from jobs import ROOT, assert_learned, run_to_end

EXAMPLE = str(ROOT / "examples" / "ray_digits.py")


@pytest.mark.parametrize("flags", [(), pytest.param(("--max-workers", "2"), marks=pytest.mark.slow)])
def test_digits_are_learned_on_two_ranks(flags: tuple[str, ...]) -> None:
    command = [sys.executable, EXAMPLE, "--address", "local", "--workers", "2", *flags]
    job = run_to_end(command, env={"OMP_NUM_THREADS": "1"})
    assert_learned(job, "ray: test accuracy _ (wanted 0.95), the same on all 2 ranks")
    assert len(re.findall(r"^epoch \d+/15: loss ", job.out, re.MULTILINE)) == 15
