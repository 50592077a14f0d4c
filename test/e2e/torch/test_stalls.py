"""A rank that does not come to what others wait for: the report says which one, on which host and for what."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

SCRIPT = """
import threading
import torch
import horovod.torch as hvd

def load_data():
    threading.Event().wait()

hvd.init()
hvd.allreduce(torch.ones(1), name="begin")
if hvd.rank() == 1:
    load_data()
hvd.allreduce(torch.ones(1), name="w")
"""


def test_a_stall_names_the_rank_that_others_wait_for(horovodrun: Any, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    limits = ("--stall-check-warning-time-seconds", "1", "--stall-check-shutdown-time-seconds", "6")
    job = horovodrun(2, str(script), flags=limits)
    assert job.code == 1, job.text
    told = re.findall(
        r"^horovodrun: others wait for rank 1 on host localhost \(pid \d+\); `horovodrun --stacks \d+`", job.err, re.MULTILINE
    )
    assert len(told) == 1, job.text  # though several warnings came
    assert "rank 1: [allreduce.w]" in job.err, job.text
    cause = re.search("^Probable cause: (.*)$", job.err, re.MULTILINE)
    assert cause, job.text
    assert cause[1].startswith('rank 1 did not submit "allreduce.w", for which others had waited for more than 6 s'), job.text
