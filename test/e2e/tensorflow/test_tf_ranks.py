"""Runs the tests of ranks/ on jobs of two and three ranks; collected by itself, that folder runs on one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

RANKS = Path(__file__).parent / "ranks"
PYTEST = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", str(RANKS))

# Ranks that wait for each other end, and say for what.
STALLS_END = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "30", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "60"}


@pytest.mark.parametrize("ranks", [2, 3])
def test_tensorflow_ranks_agree(horovodrun: Any, ranks: int) -> None:
    job = horovodrun(ranks, *PYTEST, env=STALLS_END, deadline_s=900.0)
    assert job.code == 0, job.text
    summaries = re.findall(r"\[(\d+)\]<stdout>:.*?(\d+) passed(?:, (\d+) skipped)?", job.out)
    assert sorted(int(rank) for rank, _, _ in summaries) == list(range(ranks)), job.text
    assert len({passed for _, passed, _ in summaries}) == 1, summaries
    assert int(summaries[0][1]) > 0
    assert all(skipped == "" for _, _, skipped in summaries), "nothing is skipped where there are several ranks"
