"""horovod.bench as a job, on the host's memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def test_bench_measures_all_operations_and_writes_them_as_json(horovodrun: Any, tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    job = horovodrun(
        2, "-m", "horovod.bench", "gpu", "--device=cpu", "--sizes=4,1K", "--iterations=2", f"--json={file}"
    )
    assert job.code == 0, job.text
    figures = json.loads(file.read_text())
    assert {key: figures[key] for key in ("ranks", "device", "dtype")} == {
        "ranks": 2,
        "device": "cpu",
        "dtype": "float32",
    }
    rows = [(row["operation"], row["bytes"]) for row in figures["rows"]]
    operations = ("allreduce", "allgather", "broadcast", "reducescatter", "alltoall")
    # Each rank has an element at the least.
    smallest = {"allreduce": 4, "broadcast": 4}
    assert rows == [(one, size) for one in operations for size in (smallest.get(one, 8), 1024)]
    assert all(row["time_us"] > 0 and row["busbw_GBps"] >= 0 for row in figures["rows"])
    assert job.out.count("allreduce") == 2, job.text  # rank 0 alone prints
