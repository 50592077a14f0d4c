"""Lightning's Trainer on the ranks of Horovod. The tests of ranks/ run on one rank and on two."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobs import check_ranks

HERE = Path(__file__).parent
PYTEST = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", str(HERE / "ranks"))


@pytest.mark.parametrize("ranks", [1, 2])
def test_lightning_ranks_agree(horovodrun: Any, ranks: int) -> None:
    job = horovodrun(ranks, *PYTEST, env={"HVD_LIGHTNING_RANKS": "1", "OMP_NUM_THREADS": "1"}, deadline_s=300.0)
    check_ranks(job, ranks)
