"""Large private tensors that ranks read in each other's processes, beside staged ones: the same bits."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

SCRIPT = """
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
def test_the_bits_are_those_of_staged_tensors(ranks: int, horovodrun: Any, tmp_path: Path) -> None:
    script = tmp_path / "bits.py"
    script.write_text(SCRIPT)

    def bits(cma: int, path: str) -> set[str]:
        job = horovodrun(ranks, str(script), env={"HOROVOD_LOG_LEVEL": "debug", "HOROVOD_SHM_CMA": str(cma)})
        assert job.code == 0, job.text
        assert job.err.count(f"op=allreduce backend=shm path={path}") == ranks, job.text
        assert ("path=cma" in job.err) == (cma == 1), job.text
        found = re.findall(r"bits (\w{64})", job.out)
        assert len(found) == ranks, job.text
        return set(found)

    read = bits(1, "cma")
    assert len(read) == 1
    assert read == bits(0, "staged")
