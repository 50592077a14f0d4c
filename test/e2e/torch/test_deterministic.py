"""HOROVOD_DETERMINISTIC=1: two runs give the same bits, whatever was fused with what."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

# Tensors go out with pauses that differ between runs and ranks, so that they meet in batches that differ as well.
SCRIPT = """
import hashlib, random, sys, time
import torch
import horovod.torch as hvd

hvd.init()
pauses = random.Random(f"{sys.argv[1]} {hvd.rank()}")
numbers = torch.Generator().manual_seed(hvd.rank())
names = list(range(40))
digest = hashlib.sha256()
for step in range(6):
    tensors = [torch.randn(1 + 977 * i, generator=numbers) * 10.0 ** (i % 7) for i in names]
    pauses.shuffle(names)
    handles = {}
    for i in names:
        if pauses.random() < 0.2:
            time.sleep(0.002 * pauses.random())
        handles[i] = {
            0: lambda: hvd.allreduce_async(tensors[i], name=f"r{i}"),
            1: lambda: hvd.allreduce_async(tensors[i], name=f"p{i}", op=hvd.Sum, prescale_factor=0.3),
            2: lambda: hvd.reducescatter_async(tensors[i], name=f"s{i}"),
            3: lambda: hvd.allreduce_async(tensors[i], name=f"a{i}", op=hvd.Adasum),
        }[i % 4]()
    for i in sorted(handles):
        digest.update(hvd.synchronize(handles[i]).numpy().tobytes())
    names.sort()
print("digest", digest.hexdigest())
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "sums.py"
    path.write_text(SCRIPT)
    return str(path)


def digests(horovodrun: Any, script: str, ranks: int, seed: int, deterministic: bool) -> list[str]:
    """What the results of each rank were, in rank order."""
    env = {"HOROVOD_DETERMINISTIC": "1"} if deterministic else {}
    job = horovodrun(ranks, script, str(seed), env=env)
    assert job.code == 0, job.text
    found = dict(re.findall(r"\[(\d+)\]<stdout>:digest (\w+)", job.out))
    return [found[str(rank)] for rank in range(ranks)]


@pytest.mark.parametrize("ranks", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_two_runs_give_the_same_bits(horovodrun: Any, script: str, ranks: int) -> None:
    assert digests(horovodrun, script, ranks, 1, True) == digests(horovodrun, script, ranks, 2, True)


def test_two_ranks_need_no_option_for_that(horovodrun: Any, script: str) -> None:
    assert digests(horovodrun, script, 2, 1, False) == digests(horovodrun, script, 2, 2, False)
