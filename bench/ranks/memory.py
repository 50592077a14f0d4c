"""One rank that says how much memory it has after STEPS training steps with the gradients of a ResNet-50.

Started by bench/run.py through horovodrun, a job for each way to train, as memory that was used is not given back.
Arguments: a directory (for torch's rendezvous file and the results of rank 0), and the name of a contender of
resnet50_gradients.py but DDP's, or "exchanged": a blocking allreduce of each gradient that callers exchange at once,
STEPS times; or "held": the same gradients, of which nothing is done.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from resnet50_gradients import CONTENDERS, Model, make_step, start_with_shapes
from together import finish

import horovod.torch as hvd

STEPS = 10
LARGEST_EXCHANGED = 4 << 20


def memory_mb() -> dict[str, float]:
    """Megabytes of this process; of pages that several processes have mapped, its share ("pss"). What the C library has
    been given back and keeps is not counted.
    """
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    wanted = {"Rss", "Pss", "Pss_Anon", "Pss_Shmem"}
    lines = (line.split() for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    return {name[:-1].lower(): int(kilobytes) * 1024 / 1e6 for name, kilobytes, *_ in lines if name[:-1] in wanted}


def make_exchange(shapes: list[torch.Size], calls: bool) -> Callable[[], object]:
    tensors = [tensor for tensor in Model(shapes).gradients if tensor.nbytes <= LARGEST_EXCHANGED]

    def step() -> None:
        for index, tensor in enumerate(tensors):
            if calls:
                hvd.allreduce_(tensor, name=f"gradient.{index}")

    return step


def main() -> None:
    directory, name = Path(sys.argv[1]), sys.argv[2]
    shapes = start_with_shapes(directory)
    contenders = {contender.name: contender for contender in CONTENDERS}
    step = make_step(contenders[name], shapes) if name in contenders else make_exchange(shapes, name == "exchanged")
    for _ in range(STEPS):
        step()
    hvd.barrier()
    used = memory_mb()
    hvd.barrier()  # what several ranks have mapped counts in part
    finish(directory, used)


if __name__ == "__main__":
    main()
