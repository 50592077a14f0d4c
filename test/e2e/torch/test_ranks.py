"""Runs the tests of ranks/ on jobs of two, three and four ranks; collected by itself, that folder runs on one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobs import check_ranks

pytestmark = pytest.mark.takes(64)

PYTEST = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", str(Path(__file__).parent / "ranks"))


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_agree(horovodrun: Any, ranks: int) -> None:
    check_ranks(horovodrun(ranks, *PYTEST, deadline_s=600.0), ranks)


@pytest.mark.slow
def test_four_ranks_of_two_hosts_agree(horovodrun: Any) -> None:
    every = {"HVD_EVERY_SIZE": "1"}
    check_ranks(horovodrun(4, *PYTEST, flags=["-H", "localhost:2,127.0.0.1:2"], env=every, deadline_s=900.0), 4)
