"""A compiled collective that cannot end does not hang: the job ends, and says why."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

SCRIPT = Path(__file__).parent / "scripts" / "compiled_failures.py"

pytestmark = pytest.mark.skipif(
    tuple(map(int, tf.__version__.split(".")[:2])) < (2, 18), reason="XLA compiles our collectives from TensorFlow 2.18 on"
)


def heard(job: Any) -> dict[int, str]:
    return {int(rank): text for rank, text in re.findall(r"\[(\d)\]<stdout>:heard (.*)", job.out)}


def test_a_rank_that_raises_ends_the_others_wait(horovodrun: Any) -> None:
    job = horovodrun(2, str(SCRIPT), "raise", survive=True)
    assert job.code != 0, job.text
    assert "no error" not in job.out
    assert re.search(r"UnknownError .*rank 1.*rank 1 has enough", heard(job)[0]), job.text


def test_another_order_of_tracing_is_reported_and_ends(horovodrun: Any) -> None:
    env = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "2"}
    job = horovodrun(2, str(SCRIPT), "order", env=env)
    assert job.code != 0, job.text
    assert "no error" not in job.out
    for text in heard(job).values():
        assert re.search(r'UnknownError .*did not submit "(first|second)"', text), job.text
    assert heard(job), job.text
