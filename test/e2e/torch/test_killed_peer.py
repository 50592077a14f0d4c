"""A rank that is killed in the middle of a collective: the others hear of it, by name and at once."""

from __future__ import annotations

import re
from typing import Any

import pytest

from jobs import assert_soon

SCRIPT = """
import os, signal, sys, threading, time
import torch
import horovod.torch as hvd

hvd.init()
torch.set_num_threads(1)
x = torch.ones(6_000_000)
small = [torch.ones(4) for _ in range(100)]

def small_ones():
    handles = [hvd.allreduce_async_(tensor, name=f"small.{i}", op=hvd.Min) for i, tensor in enumerate(small)]
    for handle in handles:
        hvd.synchronize(handle)

def training():
    model = torch.nn.Sequential(*(torch.nn.Linear(1000, 1000) for _ in range(4)))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1e-3), gradient_as_bucket_view=True
    )
    inputs = torch.ones(1, 1000)
    def step():
        optimizer.zero_grad()
        model(inputs).sum().backward()
        optimizer.step()
    return step

run = {
    "alltoall": lambda: hvd.alltoall(x, name="x"),
    "reducescatter": lambda: hvd.reducescatter(x, name="x"),
    "adasum": lambda: hvd.allreduce(x, name="x", op=hvd.Adasum),
    "allreduce": lambda: hvd.allreduce(x, name="x"),
    "allreduce, read": lambda: hvd.allreduce(x, name="x"),
    "views": training(),
    "small ones": small_ones,
}[sys.argv[1]]
for _ in range(10):  # then what is cached is exchanged, and gradients are views
    run()

def kill():
    print("killed", time.time(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

if hvd.rank() == 1:
    threading.Timer(0.05, kill).start()
try:
    while True:
        run()
except hvd.HorovodInternalError as error:
    print("heard", time.time(), str(error).splitlines()[0], flush=True)
"""

# Each operation and the way on which it is lost: what is larger than 4 MiB is staged, even where a thread waits for it.
PATHS = {
    "alltoall": "op=alltoall backend=shm path=staged",
    "reducescatter": "op=reducescatter backend=shm path=staged",
    "adasum": "op=adasum backend=shm path=staged",
    "allreduce": "op=allreduce backend=shm path=staged",
    "allreduce, read": "op=allreduce backend=shm path=cma",
    "views": "op=allreduce backend=shm path=direct",
    "small ones": "op=allreduce backend=shm path=exchanged",
}


@pytest.mark.parametrize("operation", PATHS)
def test_the_survivors_hear_of_it(operation: str, horovodrun: Any) -> None:
    env = {"HOROVOD_LOG_LEVEL": "debug", "HOROVOD_SHM_CMA": str(int(operation == "allreduce, read"))}

    def seconds() -> float:
        job = horovodrun(3, "-c", SCRIPT, operation, env=env, survive=True)
        assert job.code == 137, job.text
        assert job.err.count(PATHS[operation]) == 3, job.text
        killed = re.search(r"\[1\]<stdout>:killed ([\d.]+)", job.out)
        heard = re.findall(r"\[([02])\]<stdout>:heard ([\d.]+) (.*)", job.out)
        assert killed, job.text
        assert sorted(rank for rank, _, _ in heard) == ["0", "2"], job.text
        assert all("rank 1" in words for _, _, words in heard), job.text
        return max(float(when) for _, when, _ in heard) - float(killed[1])

    assert_soon(seconds, 1.0)
