"""Runs the tests of ranks/ on jobs of two, three and four ranks; collected by itself, that folder runs on one."""

from __future__ import annotations

from typing import Any

import pytest

from jobs import run_rank_tests

pytestmark = pytest.mark.takes(64)


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_agree(horovodrun: Any, ranks: int) -> None:
    run_rank_tests(horovodrun, __file__, ranks)


@pytest.mark.slow
def test_four_ranks_of_two_hosts_agree(horovodrun: Any) -> None:
    every = {"HVD_EVERY_SIZE": "1"}
    run_rank_tests(horovodrun, __file__, 4, every, flags=["-H", "localhost:2,127.0.0.1:2"], deadline_s=900.0)
