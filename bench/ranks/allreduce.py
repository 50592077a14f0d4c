"""One rank of the comparison with torch.distributed and MPI: ours, torch's gloo and MPI take turns, call by call.

Started by bench/run.py through horovodrun, or through mpirun, which adds MPI to the contenders and measures blocking
calls only. Arguments: a directory (for torch's rendezvous file and the results of rank 0), the seconds per size, and
sizes in bytes.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from together import finish, start, turns

import horovod.torch as hvd

BURST = 1000
Reduce = Callable[[torch.Tensor], object]  # sums a tensor in place over the ranks


def timed(body: Callable[[], object]) -> float:
    begin = time.perf_counter()
    body()
    return (time.perf_counter() - begin) * 1e6


def in_turns(arms: dict[str, Callable[[], object]], prepare: Callable[[], object], seconds: float) -> dict[str, float]:
    """The median of each arm in microseconds."""
    samples: dict[str, list[float]] = {name: [] for name in arms}
    for _ in turns(seconds, 6):
        for _ in range(5):
            for name, body in arms.items():
                prepare()
                dist.barrier()
                samples[name].append(timed(body))
    return {name: statistics.median(values[2:]) for name, values in samples.items()}


def peers() -> dict[str, Reduce]:
    """The contenders beside ours."""
    found: dict[str, Reduce] = {"torch": dist.all_reduce}
    if "OMPI_COMM_WORLD_SIZE" in os.environ:
        from mpi4py import MPI

        found["mpi"] = lambda tensor: MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, tensor.numpy())
    return found


def blocking(size: int, seconds: float) -> dict[str, object]:
    tensor = torch.empty(max(1, size // 4))
    rank, world = hvd.rank(), hvd.size()

    def prepare() -> None:
        tensor.fill_(float(rank + 1))

    arms = {
        "ours": lambda: hvd.allreduce_(tensor, op=hvd.Sum, name=f"b{size}"),
        **{name: partial(reduce, tensor) for name, reduce in peers().items()},
    }
    for name, body in arms.items():
        prepare()
        body()
        expected = float(world * (world + 1) // 2)
        if not bool((tensor == expected).all()):
            raise SystemExit(f"{name}: wrong sum of {size} bytes")
    return {"size": size, "np": world, "p50_us": in_turns(arms, prepare, seconds)}


def blocking_out_of_place(seconds: float) -> dict[str, object]:
    """The most common call there is: hvd.allreduce of one number, with a new tensor as its result."""
    tensor = torch.ones(1)
    arms = {
        "ours": lambda: hvd.allreduce(tensor, op=hvd.Sum, name="single"),
        "torch": lambda: dist.all_reduce(tensor),
    }
    return {"size": 4, "np": hvd.size(), "p50_us": in_turns(arms, lambda: tensor.fill_(1.0), seconds)}


def burst(seconds: float) -> dict[str, object]:
    """BURST tensors of 4 bytes: all submitted, then all waited for; ours alone, then in turns with torch's."""
    tensors = [torch.ones(1) for _ in range(BURST)]

    def ours() -> None:
        handles = [hvd.allreduce_async_(t, op=hvd.Sum, name=f"t{i}") for i, t in enumerate(tensors)]
        for handle in handles:
            hvd.synchronize(handle)

    def theirs() -> None:
        works = [dist.all_reduce(t, async_op=True) for t in tensors]
        for work in works:
            work.wait()

    def prepare() -> None:
        for t in tensors:
            t.fill_(1.0)

    for body in (ours, theirs):
        prepare()
        body()
        if any(float(t) != hvd.size() for t in tensors):
            raise SystemExit("wrong sum in the burst")
    alone = in_turns({"ours": ours}, prepare, seconds / 2)["ours"]
    turns = in_turns({"ours": ours, "torch": theirs}, prepare, seconds)
    return {"tensors": BURST, "np": hvd.size(), "p50_us": turns | {"ours_alone": alone}}


def main() -> None:
    directory, seconds = Path(sys.argv[1]), float(sys.argv[2])
    sizes = [int(s) for s in sys.argv[3].split(",")]
    start(f"{directory}/torch")
    results: dict[str, object] = {"blocking": [blocking(size, seconds) for size in sizes]}
    if "mpi" not in peers():
        results |= {"single": blocking_out_of_place(seconds), "burst": burst(seconds)}
    finish(directory, results)


if __name__ == "__main__":
    main()
