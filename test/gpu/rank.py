"""One rank of the GPU suites: `rank.py <suite> <device> <mode>`. Rank 0 prints a JSON object with figures. See run.py."""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import time
from collections.abc import Callable

import peers
import torch
from order import capture, check, devices, lost, memory, results, streams

import horovod.torch as hvd
from horovod.bench import gpu

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
EIGHT_BITS = [getattr(torch, name) for name in ("float8_e4m3fn", "float8_e5m2") if hasattr(torch, name)]
INTEGERS = (torch.uint8, torch.int8, torch.int32, torch.int64)
RESNET_50 = [9408, *[36864] * 20, *[147456] * 30, *[589824] * 25, 2048000, 1000]  # shaped like its gradients


def values(dtype: torch.dtype, rank: int, shape: tuple[int, ...] = (17, 5)) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rank + 1)
    return torch.randint(0, 4, shape, generator=generator).to(dtype)


def operations(device: torch.device) -> dict[str, float]:
    """Every operation with every type, against the same on the CPU."""
    n, rank = hvd.size(), hvd.rank()
    count = 0
    for dtype in (*FLOATS, *INTEGERS, torch.int16):
        all_values = [values(dtype, r) for r in range(n)]
        mine = all_values[rank].to(device)
        for op in (hvd.Sum, hvd.Average, hvd.Min, hvd.Max, hvd.Product):
            on_gpu = hvd.allreduce(mine, op=op)
            check(on_gpu, hvd.allreduce(all_values[rank], op=op), f"allreduce {op} {dtype}")
            count += 1
        group = hvd.grouped_allreduce([mine, mine[:3].contiguous()], op=hvd.Sum)
        check(group[1], hvd.allreduce(all_values[rank][:3].contiguous(), op=hvd.Sum), f"group {dtype}")
        check(hvd.allgather(mine[: rank + 1]), torch.cat([v[: r + 1] for r, v in enumerate(all_values)]), f"allgather {dtype}")
        check(hvd.broadcast(mine, n - 1), all_values[-1], f"broadcast {dtype}")
        check(hvd.reducescatter(mine, op=hvd.Sum), hvd.reducescatter(all_values[rank], op=hvd.Sum), f"reducescatter {dtype}")
        splits = [1 + r for r in range(n)]
        check(hvd.alltoall(mine, splits)[0], hvd.alltoall(all_values[rank], splits)[0], f"alltoall {dtype}")
        count += 5
    for dtype in EIGHT_BITS:  # torch compares none of them
        bits = [values(torch.float32, r) % 2 for r in range(n)]
        mine = bits[rank].to(device, dtype)
        for op in (hvd.Sum, hvd.Min, hvd.Max):
            check(hvd.allreduce(mine, op=op).float(), hvd.allreduce(bits[rank], op=op), f"allreduce {op} {dtype}")
        check(hvd.allgather(mine).float(), torch.cat(bits), f"allgather {dtype}")
        check(hvd.broadcast(mine, n - 1).float(), bits[-1], f"broadcast {dtype}")
        count += 5
    scaled = torch.full((9,), rank + 1.0)
    for factors in ({"prescale_factor": 0.5}, {"postscale_factor": 3.0}):
        check(hvd.allreduce(scaled.to(device), op=hvd.Sum, **factors), hvd.allreduce(scaled, op=hvd.Sum, **factors), "scaled")
    check(hvd.allreduce(scaled.to(device), op=hvd.Adasum), hvd.allreduce(scaled, op=hvd.Adasum), "Adasum")
    hvd.join()
    return {"operations": count + others(device)}


def others(device: torch.device) -> int:
    """What is made of other operations, or takes types that are only moved; on a process set, too."""
    n, rank = hvd.size(), hvd.rank()
    flags = [values(torch.int32, r) > 1 for r in range(n)]
    check(hvd.allgather(flags[rank].to(device)), torch.cat(flags), "allgather bool")
    check(hvd.broadcast(flags[rank].to(device), n - 1), flags[-1], "broadcast bool")
    check(hvd.allreduce(flags[rank].to(device), op=hvd.Max), torch.stack(flags).any(0), "allreduce bool")
    entries = torch.sparse_coo_tensor([[0, rank + 1]], [1.0, 2.0], (n + 1,), check_invariants=False)
    for op, members in ((hvd.Sum, 1), (hvd.Average, n)):
        total = hvd.sparse_allreduce_async(entries.to(device), "sparse", op)()
        assert total.device.type == device.type, total.device
        check(total.to_dense(), torch.tensor([float(n), *[2.0] * n]) / members, f"sparse {op}")
    if n > 1:
        last = hvd.add_process_set([n - 1])
        if rank == n - 1:
            own = flags[rank].float()
            check(hvd.allreduce(own.to(device), op=hvd.Sum, process_set=last), own, "process set")
        hvd.barrier()
        hvd.remove_process_set(last)
    batches = [values(torch.float32, r, (4, 3, 2)) for r in range(n)]
    normal = hvd.SyncBatchNorm(3, affine=False).to(device)(batches[rank].to(device))
    expected = torch.nn.BatchNorm1d(3, affine=False)(torch.cat(batches))
    check(normal, expected[4 * rank : 4 * rank + 4], "SyncBatchNorm")
    return 8


def lists(device: torch.device) -> dict[str, float]:
    """Lists of many tensors, whose sizes and places fit no word, plain and scaled as NCCL cannot: our own kernels."""
    count, n = 400, hvd.size()
    sizes = [1 + 37 * i % 1009 for i in range(count)] + [3_000_001]
    factors = {"prescale_factor": 2.0, "postscale_factor": 0.5}
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int8):
        for op, scales in ((hvd.Sum, {}), (hvd.Average, {}), (hvd.Max, factors)):
            whole = [(torch.arange(size + 1) % 7 + hvd.rank()).to(dtype) for size in sizes]
            parts = [tensor.to(device)[1:] for tensor in whole]  # beside a place of 16 bytes
            for at, result in enumerate(hvd.grouped_allreduce(parts, op=op, name="list", **scales)):
                lowest = torch.arange(1, sizes[at] + 1) % 7
                total = lowest * n + n * (n - 1) // 2
                expected = {hvd.Sum: total, hvd.Average: total / n, hvd.Max: lowest + n - 1}[op]
                check(result, expected.to(dtype), f"tensor {at} of {dtype} with {op}")
    return {"tensors": len(sizes) * 18}


def training(device: torch.device) -> dict[str, float]:
    """1000 steps of a small model; ranks end with the same parameters."""
    steps = 1000
    torch.manual_seed(hvd.rank())
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4)).to(device)
    optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters(), 1e-3), model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), 0)
    hvd.broadcast_optimizer_state(optimizer, 0)
    losses, begin = [], time.perf_counter()
    for _ in range(steps):
        x = torch.randn(64, 32, device=device)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), x[:, :4])
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    seconds = time.perf_counter() - begin
    assert float(losses[-1]) < 0.5 * float(losses[0]), (losses[0], losses[-1])
    for name, parameter in model.named_parameters():
        for other in hvd.allgather(parameter.detach().reshape(1, -1)).cpu():
            assert torch.equal(other, parameter.detach().cpu().reshape(-1)), name
    return {"steps_per_s": steps / seconds}


def timed(device: torch.device, run: Callable[[], None], rounds: int) -> float:
    """The median time of a call, in µs, with the device idle before and after it."""
    times = []
    for _ in range(rounds):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        begin = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - begin)
    return sorted(times)[rounds // 2] * 1e6


def device_times(run: Callable[[], object], rounds: int = 5) -> dict[str, float]:
    """What a call keeps the GPU busy with, in µs, by kernel or copy: as torch's profiler sees all of the process."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(rounds):
            run()
        torch.cuda.synchronize()
    return {each.key: each.self_device_time_total / rounds for each in profile.key_averages()}


def figures(device: torch.device) -> dict[str, float]:
    """Times of calls; `copy_102MB_us` is the bound: as many bytes read and written once. On the GPU alone: `device`."""
    small = torch.zeros(1, device=device)
    large = torch.zeros(16 << 20, device=device)
    gradients = [torch.zeros(n, device=device) for n in RESNET_50]
    flat = torch.zeros(sum(RESNET_50), device=device)
    copy = torch.empty_like(flat)
    calls: dict[str, tuple[Callable[[], object], int]] = {
        "allreduce_4B_us": (lambda: hvd.allreduce_(small, op=hvd.Sum, name="small"), 200),
        "allreduce_64MiB_us": (lambda: hvd.allreduce_(large, op=hvd.Sum, name="large"), 10),
        "resnet50_us": (lambda: hvd.grouped_allreduce_(gradients, op=hvd.Sum, name="gradients"), 10),
        "copy_102MB_us": (lambda: copy.copy_(flat), 10),
    }
    result = {}
    for name, (call, rounds) in calls.items():
        call()
        result[name] = round(timed(device, call, rounds), 1)  # type: ignore[arg-type]
    result["resnet50_of_copy"] = round(result["resnet50_us"] / result["copy_102MB_us"], 2)
    if device.type == "cuda":
        busy = {name: device_times(calls[f"{name}_us"][0]) for name in ("resnet50", "copy_102MB")}
        ours, bound = (sum(times.values()) for times in busy.values())
        result |= {"resnet50_device_us": round(ours, 1), "copy_102MB_device_us": round(bound, 1)}
        result["resnet50_device_of_copy"] = round(ours / bound, 2)
        result["packing_device_us"] = round(sum(t for name, t in busy["resnet50"].items() if "hvd_" in name), 1)
    return result


def ratios(device: torch.device) -> dict[str, float]:
    """Ours beside what it is measured by, in the same run; goals in docs/testing-gpu.md."""
    return peers.ratios(device, timed)


SUITES = (operations, lists, streams, results, capture, devices, lost, memory, training, figures, ratios)


def main() -> None:
    suite, kind, mode = sys.argv[1:]
    if limit := os.environ.get("HVD_GPU_SUITE_LIMIT"):
        faulthandler.dump_traceback_later(float(limit))
    gpu.begin(hvd, mode, process_sets="dynamic")
    device = torch.device("cpu")
    if kind == "cuda":
        device = torch.device("cuda", hvd.local_rank() % torch.cuda.device_count())
        torch.cuda.set_device(device)
    result = next(one for one in SUITES if one.__name__ == suite)(device)
    if hvd.rank() == 0:
        print("RESULT " + json.dumps({**result, "nccl": hvd.nccl_built()}), flush=True)
    hvd.shutdown()


main()
