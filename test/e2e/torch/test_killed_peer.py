"""A rank that is killed in the middle of a collective: the others hear of it, by name and at once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

SCRIPT = """
import os, signal, sys, threading, time
import torch
import horovod.torch as hvd

hvd.init()
torch.set_num_threads(1)
x = torch.ones(6_000_000)
run = {
    "alltoall": lambda: hvd.alltoall(x, name="x"),
    "reducescatter": lambda: hvd.reducescatter(x, name="x"),
    "adasum": lambda: hvd.allreduce(x, name="x", op=hvd.Adasum),
}[sys.argv[1]]
run()
if hvd.rank() == 1:
    print("killed", time.time(), flush=True)
    threading.Timer(float(sys.argv[2]), lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
try:
    while True:
        run()
except hvd.HorovodInternalError as error:
    print("heard", time.time(), str(error).splitlines()[0], flush=True)
"""


@pytest.mark.parametrize("operation", ["alltoall", "reducescatter", "adasum"])
def test_the_survivors_hear_of_it(operation: str, horovodrun: Any, tmp_path: Path) -> None:
    script = tmp_path / "killed.py"
    script.write_text(SCRIPT)
    delay = 0.05
    job = horovodrun(3, str(script), operation, str(delay), deadline_s=60)
    assert job.code == 137, job.text
    killed = float(re.search(r"\[1\]<stdout>:killed ([\d.]+)", job.out)[1]) + delay
    heard = re.findall(r"\[([02])\]<stdout>:heard ([\d.]+) (.*)", job.out)
    assert sorted(rank for rank, _, _ in heard) == ["0", "2"], job.text
    for _, when, words in heard:
        assert "rank 1" in words, job.text
        assert float(when) - killed < 2.0
