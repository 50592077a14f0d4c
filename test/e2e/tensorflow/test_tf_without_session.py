"""Graphs may be built before init(); running one without a session says what to do."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from jobs import run_to_end

SCRIPT = Path(__file__).parent / "scripts" / "without_session.py"
STAGES = ["before init", "while initialised", "after shutdown", "again"]


def test_graphs_built_before_init() -> None:
    job = run_to_end([sys.executable, str(SCRIPT)])
    assert job.code == 0, job.text
    assert job.out.splitlines() == STAGES


def test_graphs_built_before_init_on_two_ranks(horovodrun: Any) -> None:
    job = horovodrun(2, str(SCRIPT))
    assert job.code == 0, job.text
    assert all(job.out.count(stage) == 2 for stage in STAGES), job.text
