"""Autotuning as users ask for it: flags, the file, and what is printed at the end."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

TRAINING = """
import torch
import horovod.torch as hvd

hvd.init()
model = torch.nn.Sequential(*[torch.nn.Linear(100, 100) for _ in range(4)])
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
for step in range(40):
    optimizer.zero_grad()
    model(torch.randn(2, 100)).square().mean().backward()
    optimizer.step()
weights = hvd.allgather(torch.stack([p.sum() for p in model.parameters()])[None])
assert (weights == weights[0]).all(), weights
"""
FLAGS = ["--autotune", "--autotune-warmup-samples", "1", "--autotune-steps-per-sample", "1"]


def test_flags_tune_batching_and_the_file_says_what_was_tried(horovodrun: Any, tmp_path: Path) -> None:
    path = tmp_path / "tune.csv"
    flags = [*FLAGS, "--autotune-bayes-opt-max-samples", "3", "--autotune-log-file", str(path)]
    job = horovodrun(2, "-c", TRAINING, flags=flags)
    assert job.code == 0, job.text
    assert job.err.count("Autotuning has ended") == 1, job.text
    rows = list(csv.DictReader(path.open()))
    assert len(rows) == 4, rows
    tried = [(float(row["cycle_time_ms"]), float(row["tensor_fusion_threshold"])) for row in rows]
    assert tried[0] == (0, 128), rows
    assert len(set(tried[:3])) == 3, rows
    assert tried[3] in tried[:3], rows
    assert all(float(row["score"]) > 0 for row in rows), rows


def test_nothing_is_tuned_where_the_user_has_chosen_all(horovodrun: Any) -> None:
    flags = [*FLAGS, "--fusion-threshold-mb", "32", "--cycle-time-ms", "1"]
    job = horovodrun(2, "-c", TRAINING, flags=flags)
    assert job.code == 0, job.text
    assert job.err.count("there is nothing to tune") == 1, job.text
