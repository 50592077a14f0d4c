"""Runs the tests of ranks/ on two ranks; in `make test-slow` on one and three too."""

from __future__ import annotations

from typing import Any

import pytest

from jobs import run_rank_tests

ENV = {
    "HOROVOD_DYNAMIC_PROCESS_SETS": "1",
    "JAX_ENABLE_X64": "1",  # all types
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",  # compiling is most of the time
    "OMP_NUM_THREADS": "1",
}


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(3, marks=pytest.mark.slow)])
def test_jax_ranks_agree(horovodrun: Any, ranks: int) -> None:
    run_rank_tests(horovodrun, __file__, ranks, ENV)
