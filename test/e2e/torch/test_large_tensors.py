"""Tensors of more than 2^31 elements: counts and offsets are 64 bits wide all the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

ELEMENTS = 2**31 + 1001
GIB = 2**30

BEGIN = f"""
import torch
import horovod.torch as hvd

hvd.init()
torch.set_num_threads(1)
n = {ELEMENTS}
places = [0, 1, 2**16 + 1, n // 3, n // 2 - 1, n // 2, 2**31 - 1, 2**31, 2**31 + 1, n - 2, n - 1]
"""

# What each script does, and the memory that two ranks need for it.
SCRIPTS = {
    "uint8 broadcast": (
        """
        x = torch.zeros(n, dtype=torch.uint8)
        if hvd.rank() == 1:
            for i in places:
                x[i] = 1 + i % 250
        hvd.broadcast_(x, root_rank=1)
        assert all(x[i] == 1 + i % 250 for i in places)
        assert x.count_nonzero() == len(places)
        """,
        4,
    ),
    "float16 allreduce in place": (
        """
        x = torch.zeros(n, dtype=torch.float16)
        for i in places:
            x[i] = (1 + i % 250) * (hvd.rank() + 1)
        hvd.allreduce_(x, op=hvd.Sum)
        assert all(x[i] == (1 + i % 250) * 3 for i in places)
        assert x.count_nonzero() == len(places)
        """,
        9,
    ),
    "uint8 alltoall": (
        """
        x = torch.zeros(1, n, dtype=torch.uint8)  # one row: splits are int32, elements are not
        own = [i + hvd.rank() for i in places[:-1]]
        for i in own:
            x[0, i] = 1 + i % 250
        output, received = hvd.alltoall(x, [0, 1] if hvd.rank() == 0 else [1, 0])
        assert received.tolist() == ([0, 1] if hvd.rank() == 0 else [1, 0])
        other = [i + 1 - hvd.rank() for i in places[:-1]]
        assert all(output[0, i] == 1 + i % 250 for i in other)
        assert output.count_nonzero() == len(set(other))
        """,
        9,
    ),
    "uint8 allgather": (
        """
        x = torch.zeros(n if hvd.rank() == 1 else 3, dtype=torch.uint8)
        if hvd.rank() == 1:
            for i in places:
                x[i] = 1 + i % 250
        output = hvd.allgather(x)
        assert len(output) == n + 3
        assert all(output[3 + i] == 1 + i % 250 for i in places)
        assert output.count_nonzero() == len(places)
        """,
        7,
    ),
    "uint8 reducescatter": (
        """
        x = torch.zeros(n, dtype=torch.uint8)
        for i in places:
            x[i] = 1 + i % 100
        y = hvd.reducescatter(x, op=hvd.Sum)
        begin = 0 if hvd.rank() == 0 else (n + 1) // 2
        own = [i - begin for i in places if begin <= i < begin + len(y)]
        assert all(y[i] == 2 * (1 + (begin + i) % 100) for i in own)
        assert y.count_nonzero() == len(own)
        """,
        7,
    ),
}


def available_gib() -> float:
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(fields["MemAvailable"].split()[0]) * 1024 / GIB


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "shared_memory"), [*((case, True) for case in SCRIPTS), ("float16 allreduce in place", False)]
)
def test_counts_beyond_31_bits(case: str, shared_memory: bool, horovodrun: Any, tmp_path: Path) -> None:
    body, needed = SCRIPTS[case]
    if available_gib() < needed + 2:
        pytest.skip(f"two ranks need {needed} GiB, and 2 to spare; {available_gib():.1f} are available")
    script = tmp_path / "large.py"
    script.write_text(BEGIN + "\n".join(line[8:] for line in body.splitlines()) + "\nprint('right', flush=True)\n")
    env = {"HOROVOD_SHM": str(int(shared_memory)), "HOROVOD_LOG_LEVEL": "debug"}
    job = horovodrun(2, str(script), env=env, deadline_s=300)
    assert job.code == 0, job.text
    assert job.out.count("right") == 2
    backend = f"op={case.split()[1]} backend={'shm' if shared_memory else 'gloo'}"
    assert job.err.count(f"backend chosen process_set=0 {backend}") == 2, job.text
