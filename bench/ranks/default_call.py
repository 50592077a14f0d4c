"""One rank of the comparison of the usual call, `hvd.allreduce(x)`, with what could be saved of it.

The reference is the sum in place. Beside it in turns: the average in place, a prescaled sum, the average in new memory
that is dropped at once or kept until the next call, an allgather of as many bytes of output, and TensorFlow's allreduce
and allgather in eager mode. A sample has wall time, the process's processor time, and its page faults. Started by
bench/run.py through horovodrun. Arguments: a directory for the results of rank 0, the seconds per size, and the sizes.
"""

from __future__ import annotations

import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from together import finish, start, turns

import horovod.torch as hvd

WARM_UP = 3


class Arm(NamedTuple):
    """A call, and what goes over its input before: a call after which the input is in the caches is a faster one."""

    prepare: Callable[[], object]
    call: Callable[[], Any]


Arms = dict[str, Arm]


def sample(body: Callable[[], Any]) -> tuple[float, float, float]:
    """Microseconds of wall and processor time, and page faults."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    begin = time.perf_counter()
    body()
    wall = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_SELF)
    used = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return wall * 1e6, used * 1e6, after.ru_minflt - before.ru_minflt


def in_turns(arms: Arms, seconds: float) -> dict[str, dict[str, float]]:
    """Medians of each arm. Each turn begins with another arm: on a machine that does other things its place matters."""
    names = list(arms)
    samples: dict[str, list[tuple[float, float, float]]] = {name: [] for name in arms}
    for turn in turns(seconds, WARM_UP + 5):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            arms[name].prepare()
            hvd.barrier()
            samples[name].append(sample(arms[name].call))
    columns = {name: list(zip(*rows[WARM_UP:], strict=True)) for name, rows in samples.items()}
    return {
        name: dict(zip(("us", "cpu_us", "faults"), map(statistics.median, column), strict=True))
        for name, column in columns.items()
    }


def torch_arms(tensor: torch.Tensor) -> Arms:
    share = tensor[: tensor.numel() // hvd.size()]
    kept: list[torch.Tensor] = []

    def keep_result() -> None:
        kept[:] = [hvd.allreduce(tensor, name="kept")]

    calls: dict[str, Callable[[], Any]] = {
        "in place, Sum": lambda: hvd.allreduce_(tensor, op=hvd.Sum, name="sum"),
        "in place, Average": lambda: hvd.allreduce_(tensor, name="average"),
        "in place, prescale": lambda: hvd.allreduce_(tensor, op=hvd.Sum, prescale_factor=0.5, name="prescale"),
        "new tensor": lambda: hvd.allreduce(tensor, name="new"),
        "new tensor, kept": keep_result,
        "allgather": lambda: hvd.allgather(share, name="gather"),
    }

    def prepare() -> None:
        tensor.fill_(float(hvd.rank() + 1))

    return {name: Arm(prepare, call) for name, call in calls.items()}


def tensorflow_arms(tensor: torch.Tensor) -> Arms:
    import tensorflow as tf

    import horovod.tensorflow as tf_hvd

    tf.config.threading.set_intra_op_parallelism_threads(1)
    value = tf.constant(tensor.numpy())
    share = value[: tensor.numel() // hvd.size()]
    # Constants cannot be written, so they are read; numpy() is a view.
    return {
        "TensorFlow": Arm(value.numpy().max, lambda: tf_hvd.allreduce(value, name="tf")),
        "TensorFlow, allgather": Arm(share.numpy().max, lambda: tf_hvd.allgather(share, name="tf_gather")),
    }


def measure(size: int, seconds: float) -> dict[str, Any]:
    tensor = torch.full((size // 4,), float(hvd.rank() + 1))
    average = hvd.allreduce(tensor)
    if not bool((average == (hvd.size() + 1) / 2).all()):
        raise SystemExit(f"wrong average of {size} bytes")
    arms = torch_arms(tensor) | tensorflow_arms(tensor)
    return {"size": size, "np": hvd.size(), "arms": in_turns(arms, seconds)}


def main() -> None:
    directory, seconds = Path(sys.argv[1]), float(sys.argv[2])
    sizes = [int(s) for s in sys.argv[3].split(",")]
    start()
    finish(directory, {"sizes": [measure(size, seconds) for size in sizes]})


if __name__ == "__main__":
    main()
