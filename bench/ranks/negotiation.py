"""One rank that times COUNT cached allreduces of 4 bytes, submitted and then waited for: as one group, and one by one.

Started by bench/run.py through horovodrun, with HOROVOD_CACHE_CAPACITY as it says. Arguments: a directory for the
results of rank 0, the seconds, and the count.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from together import finish, start, turns

import horovod.torch as hvd

WARM_UP = 3


def arms_of(tensors: list[torch.Tensor]) -> dict[str, Callable[[], float]]:
    """They return when they had submitted all."""

    def grouped() -> float:
        handle = hvd.grouped_allreduce_async_(tensors, op=hvd.Sum, name="group")
        submitted = time.perf_counter()
        hvd.synchronize(handle)
        return submitted

    def single() -> float:
        handles = [hvd.allreduce_async_(t, op=hvd.Sum, name=f"t{i}") for i, t in enumerate(tensors)]
        submitted = time.perf_counter()
        for handle in handles:
            hvd.synchronize(handle)
        return submitted

    return {"grouped": grouped, "single": single}


def main() -> None:
    directory, seconds, count = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    start()
    tensors = [torch.ones(1) for _ in range(count)]
    result: dict[str, object] = {"tensors": count, "np": hvd.size()}
    for name, body in arms_of(tensors).items():
        samples: list[float] = []
        submissions: list[float] = []
        for _ in turns(seconds, WARM_UP + 10):
            for t in tensors:
                t.fill_(1.0)
            hvd.barrier()
            begin = time.perf_counter()
            submissions.append(body() - begin)
            samples.append(time.perf_counter() - begin)
            if any(float(t) != hvd.size() for t in tensors):
                raise SystemExit(f"{name}: wrong sum")
        result[name] = {
            "ms": statistics.median(samples[WARM_UP:]) * 1e3,
            "submit_ms": statistics.median(submissions[WARM_UP:]) * 1e3,
            "first_ms": samples[0] * 1e3,
        }
    finish(directory, result)


if __name__ == "__main__":
    main()
