"""A JAX script goes on from its last commit when a rank is lost in a compiled step."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from elastic_job import StartElastic

WORKER = str(Path(__file__).parent / "jax_worker.py")


def test_compiled_steps_go_on_after_a_rank_is_lost(start_elastic: StartElastic, tmp_path: Path) -> None:
    job = start_elastic("-np", "2", "--min-np", "2", command=(sys.executable, WORKER, str(tmp_path / "killed")))
    assert job.wait() == 0, job
    begins = re.findall(r"rank (\d) of 2 begins at step (\d+)", job.out)
    assert sorted(begins[:2]) == [("0", "0"), ("1", "0")], job
    assert sorted(begins[2:]) == [("0", "9"), ("1", "9")], "both go on from the last commit"
    ends = re.findall(r"rank (\d) ends with (.*) after step 20", job.out)
    assert sorted(ends) == [("0", "[20.0, 20.0, 20.0]"), ("1", "[20.0, 20.0, 20.0]")], job
    job.wait_all_gone()
