"""The TensorFlow examples do what their README says."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest

from jobs import ROOT, run_to_end

EXAMPLES = ROOT / "examples"
LAST_LINE = r"test accuracy (0\.\d+|1\.0+) \(wanted 0\.95\); all (\d+) ranks hold bitwise equal variables"
NAMES = ("tensorflow2_digits.py", "tensorflow2_keras_digits.py")


def assert_trained(out: str, ranks: int) -> None:
    last = re.search(LAST_LINE, out.strip().splitlines()[-1])
    assert last, out
    assert float(last[1]) >= 0.95
    assert int(last[2]) == ranks


@pytest.mark.parametrize("name", NAMES)
def test_digits_are_learned_on_two_ranks(horovodrun: Any, name: str) -> None:
    job = horovodrun(2, str(EXAMPLES / name))
    assert job.code == 0, job.text
    assert_trained(job.out, 2)


@pytest.mark.parametrize("name", NAMES)
def test_digits_are_learned_without_a_launcher(name: str) -> None:
    job = run_to_end([sys.executable, str(EXAMPLES / name)])
    assert job.code == 0, job.text
    assert_trained(job.out, 1)
