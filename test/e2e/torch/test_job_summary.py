"""What ranks tell the launcher of themselves: what they reduced, and for whom they waited."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SCRIPT = """
import os
import sys
import time
import torch
import horovod.torch as hvd

hvd.init()
hvd.allreduce(torch.ones(1000), name="begin")
for step in range(5):
    waits = f"{sys.argv[1]}/{step}"
    if hvd.rank() == 1:
        while not os.path.exists(waits):
            time.sleep(0.01)
        time.sleep(0.5)  # its work, for which rank 0 waits
    handle = hvd.allreduce_async(torch.ones(1000), name="step")
    if hvd.rank() == 0:
        os.mkdir(waits)
    hvd.synchronize(handle)
    hvd.barrier()
if hvd.rank() == 2:
    sys.stdout.flush()
    os._exit(0)  # it says nothing of itself
"""


def test_the_summary_names_the_rank_that_others_waited_for(horovodrun: Any, tmp_path: Path) -> None:
    job = horovodrun(2, "-c", SCRIPT, str(tmp_path), flags=("--summary", "--log-dir", str(tmp_path)))
    assert job.code == 0, job.text
    summary = json.loads((tmp_path / "summary.json").read_text())
    ranks = {process["rank"]: process for process in summary["processes"]}
    assert sorted(ranks) == [0, 1]
    for process in ranks.values():
        assert (process["collectives"], process["bytes"]) == (6, 6 * 1000 * 4)
        assert process["exit_code"] == 0
    assert 2.0 <= ranks[0]["waited_seconds"] <= ranks[0]["seconds"]
    assert ranks[1]["waited_seconds"] < ranks[0]["waited_seconds"] - 1.0
    assert summary["waited_for_most"]["rank"] == 1
    assert "horovodrun: summary: exit code 0 after " in job.err
    assert "\nThe others waited most for rank 1 on host localhost: for " in job.err


def test_a_rank_that_leaves_without_a_word_has_no_figures(horovodrun: Any, tmp_path: Path) -> None:
    job = horovodrun(3, "-c", SCRIPT, str(tmp_path), flags=("--log-dir", str(tmp_path)))
    assert "summary: " not in job.err  # nobody has asked for it
    ranks = {process["rank"]: process for process in json.loads((tmp_path / "summary.json").read_text())["processes"]}
    assert ranks[2]["collectives"] is None
    assert ranks[2]["waited_seconds"] is None
    assert ranks[0]["collectives"] == 6
