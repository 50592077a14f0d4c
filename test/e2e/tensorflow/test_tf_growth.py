"""Nothing grows with the number of training steps."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parent / "scripts" / "growth.py"
MORE = re.compile(r"(function|eager): (-?\d+) KiB, (-?\d+) threads, (-?\d+) descriptors more")


def check(horovodrun: Any, steps: int, kib: int, deadline_s: float) -> None:
    job = horovodrun(2, str(SCRIPT), str(steps), env={"TF_CPP_MIN_LOG_LEVEL": "2"}, deadline_s=deadline_s)
    assert job.code == 0, job.text
    measured = MORE.findall(job.out)
    assert len(measured) == 4, job.text
    for what, memory, threads, descriptors in measured:
        assert int(memory) <= kib, f"{what} steps: {job.text}"
        assert int(threads) <= 0, job.text
        assert int(descriptors) <= 0, job.text


def test_a_thousand_steps_hold_nothing(horovodrun: Any) -> None:
    check(horovodrun, 1000, kib=512, deadline_s=240)


@pytest.mark.slow
def test_ten_thousand_steps_hold_nothing(horovodrun: Any) -> None:
    """A leak of 140 bytes a step would show."""
    check(horovodrun, 10000, kib=1024, deadline_s=900)
