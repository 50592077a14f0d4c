"""What the ranks of a benchmark do together: begin, take equally many turns, end."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist

import horovod.torch as hvd


def start(meeting: str | None = None) -> None:
    """Starts Horovod, and torch.distributed with gloo if there is a file to meet at."""
    torch.set_num_threads(1)
    hvd.init()
    if meeting is not None:
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=hvd.rank(), world_size=hvd.size())


def turns(seconds: float, least: int) -> Iterator[int]:
    """Numbers from 0 on, as many on all ranks: at least so many, and until rank 0's clock says that the time is up."""
    deadline = time.perf_counter() + seconds
    for turn in itertools.count():
        yield turn
        more = turn + 1 < least or time.perf_counter() < deadline
        if not bool(hvd.broadcast(torch.tensor([float(more)]), 0, "go_on")):
            return


def finish(directory: Path, results: object) -> None:
    """Writes rank 0's results for bench/measure.py, and ends."""
    if hvd.rank() == 0:
        (directory / "result.json").write_text(json.dumps(results))
    if dist.is_initialized():
        dist.destroy_process_group()
    hvd.shutdown()
