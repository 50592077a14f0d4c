"""Runs the tests of ranks/ on one, two and three ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobs import check_ranks

PYTEST = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", str(Path(__file__).parent / "ranks"))
ENV = {"HVD_MXNET_RANKS": "1", "HOROVOD_DYNAMIC_PROCESS_SETS": "1", "OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_mxnet_ranks_agree(horovodrun: Any, ranks: int) -> None:
    check_ranks(horovodrun(ranks, *PYTEST, env=ENV, deadline_s=300.0), ranks)
