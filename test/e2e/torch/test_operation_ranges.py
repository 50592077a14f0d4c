"""Operations of processes as a profiler sees them, which NVTX_INJECTION64_PATH names."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from built_library import build
from jobs import run_to_end

# What each rank prints: the ranges that have ended, those that have not, the domains that are left, what went wrong.
SCRIPT = """
import ctypes, json, sys
import torch
import horovod.torch as hvd

fake = ctypes.CDLL(sys.argv[1])
def ask(what):
    function = getattr(fake, "fake_nvtx_" + what)
    function.restype = ctypes.c_char_p
    return function().decode().splitlines()

hvd.init()
for step in range(20):
    hvd.allreduce(torch.ones(3), name="small")
hvd.allreduce(torch.ones(100_000), name="large")
hvd.allgather(torch.ones(2, 3), name="rows")
hvd.barrier()
try:
    hvd.allreduce(torch.ones(2 + hvd.rank()), name="unlike")
except RuntimeError:
    hvd.barrier()
if hvd.rank() == 0:
    lonely = hvd.allreduce_async(torch.ones(5), name="lonely")
    assert ask("open") in ([], ["HorovodAllreduce allreduce.lonely 20"])  # without a profiler, and with one
hvd.barrier()
hvd.shutdown()
print("RANGES " + json.dumps([ask(what) for what in ("take_ended", "open", "domains", "breaches")]))
"""


def expected(rank: int) -> Counter[str]:
    ranges = Counter(
        {
            "HorovodAllreduce allreduce.small 12": 20,
            "HorovodAllreduce allreduce.large 400000": 1,
            "HorovodAllgather allgather.rows 24": 1,
            "HorovodBarrier": 3,
            f"HorovodAllreduce allreduce.unlike {8 + 4 * rank}": 1,
        }
    )
    if rank == 0:
        ranges["HorovodAllreduce allreduce.lonely 20"] = 1
    return ranges


@pytest.fixture(scope="module")
def profiler(horovodrun_path: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    built = run_to_end([horovodrun_path, "--check-build", "--verbose"])
    if "NVTX ranges: left out" in built.out:
        pytest.skip("NVTX's headers were not there when this Horovod was built")
    return build(tmp_path_factory.mktemp("fakes"), "fake_nvtx", ["fake_nvtx/fake_nvtx.cc"])


def ranges_of(horovodrun: Any, folder: Path, profiler: str, **env: str) -> dict[int, list[list[str]]]:
    script = folder / "script.py"
    script.write_text(SCRIPT)
    job = horovodrun(2, str(script), profiler, env=env)
    assert job.code == 0, job.text
    said = re.findall(r"\[(\d)\]<stdout>:RANGES (.*)", job.out)
    assert len(said) == 2, job.text
    return {int(rank): json.loads(text) for rank, text in said}


def test_a_profiler_sees_each_operation_of_each_rank(horovodrun: Any, tmp_path: Path, profiler: str) -> None:
    for rank, (ended, *rest) in ranges_of(horovodrun, tmp_path, profiler, NVTX_INJECTION64_PATH=profiler).items():
        # A barrier has a name of its own, and no bytes.
        seen = Counter("HorovodBarrier" if re.fullmatch(r"HorovodBarrier \S+ 0", line) else line for line in ended)
        assert seen == expected(rank)
        assert rest == [[], [], []]


def test_a_profiler_that_cannot_be_loaded_is_none(horovodrun: Any, tmp_path: Path, profiler: str) -> None:
    said = ranges_of(horovodrun, tmp_path, profiler, NVTX_INJECTION64_PATH="/nonexistent/profiler.so")
    assert said == {0: [[], [], [], []], 1: [[], [], [], []]}
