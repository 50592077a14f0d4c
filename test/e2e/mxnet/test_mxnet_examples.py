"""The example for MXNet does what its README says, with and without the launcher."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from jobs import ROOT, assert_learned, run_to_end

EXAMPLE = str(ROOT / "examples" / "mxnet_digits.py")


@pytest.mark.parametrize("ranks", [1, 2])
def test_digits_are_learned(horovodrun: Any, ranks: int) -> None:
    env = {"OMP_NUM_THREADS": "1"}
    job = horovodrun(2, EXAMPLE, env=env) if ranks == 2 else run_to_end([sys.executable, EXAMPLE], env=env)
    assert_learned(job, f"mxnet: test accuracy _ (wanted 0.95); all {ranks} ranks hold bitwise equal weights")
