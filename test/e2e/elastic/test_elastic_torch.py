"""A torch script that trains on when rank 0 is killed: nobody's parameters differ in the end."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

from elastic_job import StartElastic

from jobs import ROOT

EXAMPLE = ROOT / "examples" / "pytorch_digits_elastic.py"


def test_digits_are_learned_though_rank_0_is_killed(start_elastic: StartElastic) -> None:
    command = (sys.executable, str(EXAMPLE), "--epochs", "8", "--total-batch", "64")
    job = start_elastic("-np", "2", "--min-np", "2", command=command)
    job.wait_for("epoch 2/8", 60)
    started_as_0 = [
        pid
        for pid, line in job.processes().items()
        if line.startswith(sys.executable) and b"HOROVOD_RANK=0" in (Path("/proc") / str(pid) / "environ").read_bytes()
    ]
    assert len(started_as_0) == 1, job
    os.kill(started_as_0[0], signal.SIGKILL)
    assert job.wait(90) == 0, job
    begins = re.findall(r"rank (\d) of 2 begins at epoch (\d+), batch (\d+), 32 images", job.out)
    assert len(begins) == 4, job
    assert {one[0] for one in begins[2:]} == {"0", "1"}
    assert {one[1:] for one in begins[2:]} == {begins[2][1:]}, "both go on at the same place"
    assert int(begins[2][1]) >= 2, job
    assert re.search(r"test accuracy \S+ \(wanted 0\.95\); all 2 ranks hold bitwise equal parameters", job.out), job
    job.wait_all_gone()
