"""Results have the same bits: of tensors that ranks read in each other's processes and of staged ones, and with
HOROVOD_DETERMINISTIC=1 in two runs, whatever was fused with what.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

LARGE = """
import hashlib
import torch
import horovod.torch as hvd

hvd.init()
torch.set_num_threads(1)
generator = torch.Generator().manual_seed(hvd.rank())
bits = hashlib.sha256()

def count(tensor):
    bits.update(tensor.contiguous().view(torch.uint8).numpy().tobytes())

for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
    x = torch.randn(1_000_003, generator=generator).to(dtype)
    before = x.clone()
    count(hvd.allreduce(x, op=hvd.Average, prescale_factor=0.7))
    assert torch.equal(x, before)
    count(hvd.allreduce_(x, op=hvd.Sum))
    many = [torch.randn(n, generator=generator).to(dtype) for n in (7, 300_001, 1, 50_000)]
    for result in hvd.grouped_allreduce(many, op=hvd.Max):
        count(result)
print("bits", bits.hexdigest(), flush=True)
"""


@pytest.mark.parametrize("ranks", [2, 3])
def test_the_bits_are_those_of_staged_tensors(ranks: int, horovodrun: Any) -> None:
    def bits(cma: int, path: str) -> set[str]:
        job = horovodrun(ranks, "-c", LARGE, env={"HOROVOD_LOG_LEVEL": "debug", "HOROVOD_SHM_CMA": str(cma)})
        assert job.code == 0, job.text
        assert job.err.count(f"op=allreduce backend=shm path={path}") == ranks, job.text
        assert ("path=cma" in job.err) == (cma == 1), job.text
        found = re.findall(r"bits (\w{64})", job.out)
        assert len(found) == ranks, job.text
        return set(found)

    read = bits(1, "cma")
    assert len(read) == 1
    assert read == bits(0, "staged")


# Tensors go out with pauses that differ between runs and ranks, so that they meet in batches that differ as well.
PAUSES = """
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


def digests(horovodrun: Any, ranks: int, seed: int, deterministic: bool) -> list[str]:
    """What the results of each rank were, in rank order."""
    env = {"HOROVOD_DETERMINISTIC": "1"} if deterministic else {}
    job = horovodrun(ranks, "-c", PAUSES, str(seed), env=env)
    assert job.code == 0, job.text
    found = dict(re.findall(r"\[(\d+)\]<stdout>:digest (\w+)", job.out))
    return [found[str(rank)] for rank in range(ranks)]


@pytest.mark.parametrize("ranks", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_two_runs_give_the_same_bits(horovodrun: Any, ranks: int) -> None:
    assert digests(horovodrun, ranks, 1, True) == digests(horovodrun, ranks, 2, True)


def test_two_ranks_need_no_option_for_that(horovodrun: Any) -> None:
    assert digests(horovodrun, 2, 1, False) == digests(horovodrun, 2, 2, False)
