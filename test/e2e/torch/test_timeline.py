"""The timeline as users ask for it: by a flag, a variable or calls, and what is in the file when a rank is killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

TRAINING = """
import os, signal, sys, time
import torch
import horovod.torch as hvd

hvd.init()
for step in range(20):
    hvd.allreduce(torch.tensor([1.0, 2, 3]), name="test_allreduce")
    hvd.allgather(torch.ones(2, 3), name="gathered")
if sys.argv[1:] == ["killed"]:
    hvd.barrier()
    if hvd.rank() == 0:  # when it has been written, which a thread of its own does
        end = time.monotonic() + 60
        while '"BARRIER"' not in open(os.environ["HOROVOD_TIMELINE"]).read() and time.monotonic() < end:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
"""
CALLS = """
import json, sys
import torch
import horovod.torch as hvd

hvd.init()
for use in range(4):
    for marks in (True, False):
        path = f"{sys.argv[1]}/{use}{marks}.json"
        hvd.start_timeline(path, mark_cycles=marks)
        hvd.start_timeline(path, mark_cycles=marks)
        hvd.allreduce(torch.ones(3), name="test_allreduce")
        hvd.stop_timeline()
        hvd.barrier()
        if hvd.rank() == 0:
            text = open(path).read()
            assert json.loads(text)
            for word in ("allreduce.test_allreduce", "NEGOTIATE_ALLREDUCE", '"ALLREDUCE"'):
                assert word in text, (path, word)
            assert ("CYCLE_START" in text) == marks, path
hvd.stop_timeline()
hvd.start_timeline("/nonexistent/folder/t.json")
hvd.allreduce(torch.ones(3), name="test_allreduce")
print("ok")
"""


def events(path: Path, tensor: str) -> list[str]:
    """What begins on the tensor's line."""
    trace = json.loads(path.read_text())
    named = [event for event in trace if event.get("name") == "process_name"]
    pids = [event["pid"] for event in named if event["args"].get("name") == tensor]
    assert len(pids) == 1, tensor
    return [e["name"] for e in trace if e["pid"] == pids[0] and e["ph"] == "B"]


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_flags_write_a_timeline(horovodrun: Any, tmp_path: Path, ranks: int) -> None:
    path = tmp_path / "t.json"
    job = horovodrun(ranks, "-c", TRAINING, flags=["--timeline-filename", str(path), "--timeline-mark-cycles"])
    assert job.code == 0, job.text
    assert "timeline" not in job.err, job.text
    for tensor, op in (("allreduce.test_allreduce", "ALLREDUCE"), ("allgather.gathered", "ALLGATHER")):
        begun = events(path, tensor)
        assert begun.count(f"NEGOTIATE_{op}") == begun.count(op) == 20, tensor
        assert begun.count("QUEUE") + begun.count("TREE_ALLREDUCE") == 20, tensor
    assert "CYCLE_START" in path.read_text()


def test_calls_start_and_stop_timelines(horovodrun: Any, tmp_path: Path) -> None:
    job = horovodrun(2, "-c", CALLS, str(tmp_path), env={"HOROVOD_TIMELINE": "DYNAMIC"})
    assert job.code == 0, job.text
    assert job.out.count("ok") == 2, job.text
    assert job.err.count("cannot write a timeline: cannot open /nonexistent/folder/t.json: No such file") == 1, job.text


def test_the_timeline_of_a_rank_that_is_killed_can_be_read(horovodrun: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    job = horovodrun(2, "-c", TRAINING, "killed", env={"HOROVOD_TIMELINE": str(path)})
    assert job.code == 137, job.text
    assert events(path, "allreduce.test_allreduce").count("ALLREDUCE") == 20
