"""`horovodrun -np N python -m horovod.bench gpu`: times and bandwidths of all operations on GPUs, 4 B to 1 GiB.

Bandwidths are those of nccl-tests, so that its figures on the same machine can stand beside these. The time is the mean
over calls one after the other, and over ranks. All of it twice: by `default`, where the host waits for the GPU after
each call, and with `async completion`, where allreduces and broadcasts follow each other without that, as calls do in
nccl-tests; the others give back the memory of their results, and wait for the GPU there. One rank for each GPU; more
ranks than GPUs measure the way through the host's memory.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from horovod import _env
from horovod.bench.busbw import OPERATIONS, Row, sizes_of, write_figures

__all__ = ["MODES", "begin", "main"]

# How calls end on a GPU, which is chosen when a session begins, and whether they end before the GPU is done
# (HOROVOD_ENABLE_ASYNC_COMPLETION): by default the host waits for each. On the CPU it changes nothing.
MODES = {"default": False, "async completion": True}

_MOST_BYTES = 1 << 33  # moved by the calls of one row, so that a large one does not take minutes


def begin(hvd: Any, mode: str, **arguments: Any) -> None:
    """`hvd.init()` in `mode`, whatever the user's environment says."""
    _env.set_async_completion(MODES[mode])
    hvd.init(**arguments)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m horovod.bench gpu", description=__doc__.split("\n\n")[0])
    made.add_argument("--sizes", type=sizes_of, default="4:1G:4", help="BEGIN:END:FACTOR or a list; default 4:1G:4")
    made.add_argument("--operations", default=",".join(OPERATIONS), help="a list; default: all")
    made.add_argument("--dtype", choices=("float32", "float16", "bfloat16"), default="float32")
    made.add_argument("--iterations", type=int, default=20, help="calls of a row, at most; default 20")
    made.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: the same on the host's memory")
    made.add_argument("--json", type=Path, help="file for the figures, written by rank 0")
    return made


def _calls(torch: Any, hvd: Any, device: Any, dtype: Any, size: int) -> dict[str, tuple[int, Callable[[], Any]]]:
    """For each operation the bytes that it moves of `size` (whole shares of all ranks), and what starts a call."""
    ranks = hvd.size()
    elements = max(size // dtype.itemsize, 1)
    share = max(elements // ranks, 1)
    whole = torch.zeros(elements, dtype=dtype, device=device)
    shares = torch.zeros(share * ranks, dtype=dtype, device=device)
    one = shares[:share]
    whole_bytes, shares_bytes = elements * dtype.itemsize, share * ranks * dtype.itemsize
    scatter = hvd.reducescatter_async
    return {
        "allreduce": (whole_bytes, lambda: hvd.allreduce_async_(whole, op=hvd.Sum, name="bench.allreduce")),
        "allgather": (shares_bytes, lambda: hvd.allgather_async(one, name="bench.allgather")),
        "broadcast": (whole_bytes, lambda: hvd.broadcast_async_(whole, 0, name="bench.broadcast")),
        "reducescatter": (shares_bytes, lambda: scatter(shares, op=hvd.Sum, name="bench.reducescatter")),
        "alltoall": (shares_bytes, lambda: hvd.alltoall_async(shares, name="bench.alltoall")),
    }


def _time_us(torch: Any, hvd: Any, device: Any, start: Callable[[], Any], calls: int) -> float:
    """The mean of `calls` calls one after the other, and over ranks."""

    def run(count: int) -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        hvd.barrier()
        begin = time.perf_counter()
        for _ in range(count):
            hvd.synchronize(start())
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return (time.perf_counter() - begin) / count * 1e6

    run(min(calls, 3))  # communicators, memory
    own = torch.tensor([run(calls)], dtype=torch.float64)
    return float(hvd.allreduce(own, op=hvd.Average, name="bench.time"))


def measure(torch: Any, hvd: Any, mode: str, options: argparse.Namespace, operations: list[str]) -> dict[str, Any]:
    """The figures of a session of one mode. Rank 0 prints them as they come."""

    def show(line: str) -> None:
        if hvd.rank() == 0:
            print(line)

    device = torch.device("cpu")
    if options.device == "cuda":
        device = torch.device("cuda", hvd.local_rank() % torch.cuda.device_count())
        torch.cuda.set_device(device)
    dtype = getattr(torch, options.dtype)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    show(f"# {mode}: {hvd.size()} ranks on {name}, NCCL {hvd.nccl_built()}, {options.dtype}")
    show(f"# {'operation':>13} {'bytes':>12} {'time us':>12} {'algbw GB/s':>11} {'busbw GB/s':>11}")
    rows = []
    for operation in operations:
        for size in options.sizes:
            moved, start = _calls(torch, hvd, device, dtype, size)[operation]
            calls = max(1, min(options.iterations, _MOST_BYTES // moved))
            row = Row(mode, operation, moved, _time_us(torch, hvd, device, start, calls), hvd.size())
            rows.append(row)
            show(f"{operation:>15} {moved:>12} {row.time_us:>12.2f} {row.algbw:>11.3f} {row.busbw:>11.3f}")
    return {
        "ranks": hvd.size(), "device": name, "nccl": hvd.nccl_built(), "torch": torch.__version__,
        "dtype": options.dtype, "rows": [row.as_json() for row in rows],
    }  # fmt: skip


def _why_not(options: argparse.Namespace) -> str:
    """Empty, or why nothing can be measured."""
    try:
        import torch
    except ImportError as missing:
        return f"it measures tensors of torch: {missing}"
    if options.device == "cuda" and not torch.cuda.is_available():
        return f"torch {torch.__version__} finds no GPU; --device cpu measures the same on the host's memory"
    return ""


def main(arguments: list[str]) -> int:
    options = parser().parse_args(arguments)
    operations = options.operations.split(",")
    unknown = [one for one in operations if one not in OPERATIONS]
    if unknown or options.iterations < 1:
        what = f"operations {', '.join(unknown)}" if unknown else f"--iterations {options.iterations}"
        print(f"horovod.bench gpu: {what}: expected {', '.join(OPERATIONS)}, and 1 call or more", file=sys.stderr)
        return 2
    if why_not := _why_not(options):
        print(f"horovod.bench gpu: {why_not}", file=sys.stderr)
        return 1
    import torch

    import horovod.torch as hvd

    figures: dict[str, Any] = {"rows": []}
    for mode in MODES:
        begin(hvd, mode)
        of_mode = measure(torch, hvd, mode, options, operations)
        figures = {**of_mode, "rows": figures["rows"] + of_mode["rows"]}
        if options.json is not None and hvd.rank() == 0:
            write_figures(options.json, figures)
        hvd.shutdown()
    return 0
