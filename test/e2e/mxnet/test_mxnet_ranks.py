"""Runs the tests of ranks/ on one, two and three ranks."""

from __future__ import annotations

from typing import Any

import pytest

from jobs import run_rank_tests

ENV = {"HOROVOD_DYNAMIC_PROCESS_SETS": "1", "OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_mxnet_ranks_agree(horovodrun: Any, ranks: int) -> None:
    run_rank_tests(horovodrun, __file__, ranks, ENV, deadline_s=300.0)
