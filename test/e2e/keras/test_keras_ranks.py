"""Runs the tests of ranks/ on each of Keras' backends besides TensorFlow, on one, two and three ranks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

RANKS = Path(__file__).parent / "ranks"
PYTEST = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", str(RANKS))


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_keras_ranks_agree(horovodrun: Any, backend: str, ranks: int) -> None:
    job = horovodrun(ranks, *PYTEST, env={"KERAS_BACKEND": backend}, deadline_s=900.0)
    assert job.code == 0, job.text
    summaries = re.findall(r"\[(\d+)\]<stdout>:.*?(\d+) passed", job.out)
    assert sorted(int(rank) for rank, _ in summaries) == list(range(ranks)), job.text
    assert len({passed for _, passed in summaries}) == 1, summaries
    assert int(summaries[0][1]) > 0
