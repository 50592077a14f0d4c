"""horovod.bench as a job, on the host's memory."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import horovod.bench

BENCH = Path(horovod.bench.__file__).with_name("__main__.py")
RANK = Path(__file__).resolve().parents[3] / "test" / "gpu" / "rank.py"
# Before each hvd.init() of the program in argv: what the native core will read.
WATCHED = """
import ctypes, runpy, sys
import horovod.torch as hvd
init, getenv = hvd.init, ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p
def watched(*arguments, **named):
    print("begins with", getenv(b"HOROVOD_ENABLE_ASYNC_COMPLETION").decode(), flush=True)
    init(*arguments, **named)
hvd.init = watched
sys.argv = sys.argv[1:]
sys.path.insert(0, sys.argv[0].rsplit("/", 1)[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""


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
    rows = [(row["mode"], row["operation"], row["bytes"]) for row in figures["rows"]]
    operations = ("allreduce", "allgather", "broadcast", "reducescatter", "alltoall")
    # Each rank has an element at the least.
    smallest = {"allreduce": 4, "broadcast": 4}
    assert rows == [
        (mode, one, size)
        for mode in ("default", "async completion")
        for one in operations
        for size in (smallest.get(one, 8), 1024)
    ]
    assert all(row["time_us"] > 0 and row["busbw_GBps"] >= 0 for row in figures["rows"])
    assert job.out.count("allreduce") == 4, job.text  # rank 0 alone prints
    heads = [line.split(",")[0].split(">:")[-1] for line in job.out.splitlines() if " ranks on " in line]
    assert heads == ["# default: 2 ranks on cpu", "# async completion: 2 ranks on cpu"]


def test_bench_of_the_network_writes_json_where_two_ranks_are_all(horovodrun: Any, tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    few = ("--message=1K", "--sizes=4,1K", "--gradients=4K", "--step-ms=10", "--seconds=0.01")
    job = horovodrun(2, "-m", "horovod.bench", "network", *few, f"--json={file}")
    assert job.code == 0, job.text
    figures = json.loads(file.read_text())
    assert (figures["ranks"], figures["message_bytes"], figures["gradients_bytes"]) == (2, 1024, 4096)
    assert list(figures["hosts"].values()) == [2]
    (link,), (host,) = figures["links"], figures["hosts"]
    assert (link["from"], link["to"]) == (host, host)
    assert link["small_us"] > 0
    assert [row["bytes"] for row in figures["allreduce"]] == [4, 1024]
    (step,) = figures["steps"]
    assert step["worst_ms"] == pytest.approx(10 + figures["gradients_ms"], abs=0.01)
    assert "slow" not in job.out


# The user's environment says the opposite of what is asked for.
@pytest.mark.parametrize(
    ("users", "program", "expected"),
    [
        ("1", [BENCH, "gpu", "--device=cpu", "--sizes=4", "--iterations=1", "--operations=allreduce"], ["0", "1"]),
        ("1", [RANK, "streams", "cpu", "default"], ["0"]),
        ("0", [RANK, "streams", "cpu", "async completion"], ["1"]),
    ],
)
def test_ranks_begin_in_the_mode_that_is_measured(
    horovodrun: Any, users: str, program: list[Any], expected: list[str]
) -> None:
    job = horovodrun(2, "-c", WATCHED, *map(str, program), env={"HOROVOD_ENABLE_ASYNC_COMPLETION": users})
    assert job.code == 0, job.text
    assert sorted(re.findall(r"begins with (\S+)", job.out)) == sorted(expected * 2), job.text
