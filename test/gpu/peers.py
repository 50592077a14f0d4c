"""What operations on GPUs are compared with, in the same run: bare NCCL, copies, PCIe, torch's DDP. See rank.py."""

from __future__ import annotations

import copy
import ctypes
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch

import horovod.torch as hvd

Timed = Callable[[torch.device, Callable[[], None], int], float]
MIB = 1 << 20
TURNS = 21  # of each kind of step, an odd number for the median


def host_time(device: torch.device, run: Callable[[], Any], rounds: int = 300) -> float:
    """The median of what a call costs the host, in µs. Calls of ours wait for the GPU, but with async completion."""
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return sorted(times)[rounds // 2] * 1e6


def bare_nccl(device: torch.device, tensor: torch.Tensor) -> Callable[[], None]:
    """A call of ncclAllReduce on a communicator of one rank, from the NCCL that torch has loaded; ctypes adds to it.

    To other memory: in place NCCL launches nothing for one rank.
    """
    nccl = ctypes.CDLL("libnccl.so.2")
    comm = ctypes.c_void_p()
    device_number = ctypes.c_int(device.index)
    assert nccl.ncclCommInitAll(ctypes.byref(comm), 1, ctypes.byref(device_number)) == 0
    other = torch.empty_like(tensor)
    data, result = ctypes.c_void_p(tensor.data_ptr()), ctypes.c_void_p(other.data_ptr())
    stream, count = ctypes.c_void_p(torch.cuda.current_stream(device).cuda_stream), ctypes.c_size_t(other.numel())

    def call() -> None:
        assert nccl.ncclAllReduce(data, result, count, 7, 0, comm, stream) == 0  # float32, sum

    return call


def launch(device: torch.device) -> dict[str, float]:
    """Host time of a cached allreduce of 4 bytes beside that of NCCL's own call, which does not wait for the GPU."""
    small = torch.zeros(1, device=device)
    figures = {"allreduce_4B_host_us": host_time(device, lambda: hvd.allreduce_(small, op=hvd.Sum, name="small"))}
    if device.type == "cuda":
        figures["bare_nccl_4B_host_us"] = host_time(device, bare_nccl(device, small))
        figures["launch_more_us"] = figures["allreduce_4B_host_us"] - figures["bare_nccl_4B_host_us"]
    return figures


def staged(device: torch.device, timed: Timed) -> dict[str, float]:
    """64 MiB of a type that NCCL does not reduce, beside copies of as much to pinned memory and back."""
    tensor = torch.zeros(64 * MIB // 2, dtype=torch.int16, device=device)
    pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=device.type == "cuda")

    def both_ways() -> None:
        pinned.copy_(tensor, non_blocking=True)
        tensor.copy_(pinned, non_blocking=True)

    def reduce() -> None:
        hvd.allreduce_(tensor, op=hvd.Sum, name="staged")

    reduce()
    ours, copies = timed(device, reduce, 10), timed(device, both_ways, 10)
    return {"staged_64MiB_us": ours, "pcie_64MiB_us": copies, "staged_of_pcie": copies / ours}


def step_of(model: Any, optimizer: Any, x: torch.Tensor) -> Callable[[], None]:
    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def steps(device: torch.device, timed: Timed) -> dict[str, float]:
    """A training step with DistributedOptimizer, with torch's DDP, and with neither; turns are taken."""
    torch.manual_seed(0)
    width = 512 if device.type == "cuda" else 32
    layers = [layer for _ in range(20) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    local = torch.nn.Sequential(*layers).to(device)
    ours, theirs = copy.deepcopy(local), copy.deepcopy(local)
    if not torch.distributed.is_initialized():
        file = tempfile.mktemp(prefix="hvd-ddp-")
        backend = "nccl" if device.type == "cuda" else "gloo"
        torch.distributed.init_process_group(backend, init_method=f"file://{file}", rank=0, world_size=1)
    ddp = torch.nn.parallel.DistributedDataParallel(theirs, device_ids=[device] if device.type == "cuda" else None)
    optimizer = torch.optim.SGD(ours.parameters(), 1e-3)
    distributed = hvd.DistributedOptimizer(optimizer, ours.named_parameters())
    x = torch.randn(64, width, device=device)
    runs = {
        "local": step_of(local, torch.optim.SGD(local.parameters(), 1e-3), x),
        "horovod": step_of(ours, distributed, x),
        "ddp": step_of(ddp, torch.optim.SGD(theirs.parameters(), 1e-3), x),
    }
    for _ in range(3):
        for run in runs.values():
            run()
    samples: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(TURNS):
        for name, run in runs.items():
            samples[name].append(timed(device, run, 5))
    figures = {f"step_{name}_us": sorted(times)[TURNS // 2] for name, times in samples.items()}
    torch.distributed.destroy_process_group()
    more, peer = (figures[f"step_{name}_us"] - figures["step_local_us"] for name in ("horovod", "ddp"))
    return {**figures, "step_more_us": more, "step_more_of_ddp_us": peer}


def ratios(device: torch.device, timed: Timed) -> dict[str, float]:
    figures = {"cores": float(os.cpu_count() or 0), **launch(device), **staged(device, timed)}
    if hvd.size() == 1:
        figures |= steps(device, timed)  # peers of one rank
    return {name: round(value, 2) for name, value in figures.items()}
