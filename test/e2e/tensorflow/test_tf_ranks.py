"""Runs the tests of ranks/ on jobs of two and three ranks; collected by itself, that folder runs on one."""

from __future__ import annotations

from typing import Any

import pytest

from jobs import run_rank_tests

pytestmark = pytest.mark.takes(252)

# Ranks that wait for each other end, and say for what.
STALLS_END = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "30", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "60"}


@pytest.mark.parametrize("ranks", [2, 3])
def test_tensorflow_ranks_agree(horovodrun: Any, ranks: int) -> None:
    run_rank_tests(horovodrun, __file__, ranks, STALLS_END, deadline_s=900.0)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 3])
def test_every_test_agrees_on_every_number_of_ranks(horovodrun: Any, ranks: int) -> None:
    run_rank_tests(horovodrun, __file__, ranks, {**STALLS_END, "HVD_EVERY_SIZE": "1"}, deadline_s=1200.0)
