#!/usr/bin/env python3
"""One rank that times blocking allreduces of 4 bytes: in a tight loop, and between 2 ms of other work or of sleep.

    horovodrun -np 2 chrt -f 1 python bench/ranks/small_calls.py [directory] [calls]

Under `chrt -f 1` (as root) what else runs on the machine hardly disturbs: medians of runs then differ by a tenth, where
they otherwise differ by a factor of three. Ours and torch's gloo take turns, a series each. Prints rank 0's times, and
writes them into the directory.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import gettempdir

import torch
import torch.distributed as dist

import horovod.torch as hvd

PAUSE_S = 0.002
TURNS = 4


def work() -> None:
    end = time.perf_counter() + PAUSE_S
    while time.perf_counter() < end:
        pass


def series(call: Callable[[], object], before: Callable[[], object], calls: int) -> list[float]:
    times = []
    for i in range(calls + 20):
        before()
        start = time.perf_counter()
        call()
        if i >= 20:
            times.append((time.perf_counter() - start) * 1e6)
    return times


def main() -> None:
    directories = [Path(argument) for argument in sys.argv[1:] if not argument.isdigit()]
    calls = next((int(argument) for argument in sys.argv[1:] if argument.isdigit()), 2000)
    torch.set_num_threads(1)
    hvd.init()
    meeting = hvd.broadcast_object(f"{gettempdir()}/small_calls.{os.getpid()}", 0)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=hvd.rank(), world_size=hvd.size())
    tensor = torch.ones(1)
    arms: dict[str, Callable[[], object]] = {
        "ours": lambda: hvd.allreduce_(tensor, name="one", op=hvd.Max),
        "torch gloo": lambda: dist.all_reduce(tensor, op=dist.ReduceOp.MAX),
    }
    pauses: dict[str, tuple[Callable[[], object], int]] = {
        "tight loop": (lambda: None, calls),
        "2 ms of work between": (work, calls // 10),
        "2 ms of sleep between": (lambda: time.sleep(PAUSE_S), calls // 10),
    }
    results: dict[str, dict[str, float]] = {}
    for pause, (before, count) in pauses.items():
        times: dict[str, list[float]] = {name: [] for name in arms}
        for _ in range(TURNS):
            for name, call in arms.items():
                times[name].append(statistics.median(series(call, before, count // TURNS)))
        results[pause] = {name: statistics.median(medians) for name, medians in times.items()}
        if hvd.rank() == 0:
            print(pause, {name: f"{us:.1f} us" for name, us in results[pause].items()}, flush=True)
    if hvd.rank() == 0:
        for directory in directories:
            (directory / "result.json").write_text(json.dumps(results))
    dist.destroy_process_group()
    hvd.shutdown()


if __name__ == "__main__":
    main()
