"""What GPUs do one after the other: streams, graphs, several GPUs of a process, and a peer that is lost. See rank.py."""

from __future__ import annotations

import os
import threading
import time

import torch

import horovod.torch as hvd


def check(got: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    torch.testing.assert_close(got.cpu(), expected, msg=lambda text: f"{what}: {text}")


def streams(device: torch.device) -> dict[str, float]:
    """Inputs that are still being computed when they are submitted, on the default and on a side stream."""
    rounds = 200
    width = 1500 if device.type == "cuda" else 50
    side = torch.cuda.Stream(device) if device.type == "cuda" else None
    for i in range(rounds):
        with torch.cuda.stream(side if i % 2 else None):
            work = torch.full((width, width), 1.0, device=device)
            tensor = (work @ work)[0, : 2 * width // 3] * 0 + i  # after a product that takes a while
            handle = hvd.allreduce_async(tensor, op=hvd.Sum, name="stream")
            del work
            result = hvd.synchronize(handle) + 1
            check(result, torch.full((2 * width // 3,), float(i * hvd.size() + 1)), f"round {i}")
    return {"rounds": rounds}


def results(device: torch.device) -> dict[str, float]:
    """Results that are let go of while a stream is still to read them hold what they did, until it has.

    Where all ranks give as many rows, they are torch's, which has to be told of the stream, as of any of its tensors.
    """
    rounds, n = 40, hvd.size()
    side = torch.cuda.Stream(device) if device.type == "cuda" else None
    cases = [(elements, more) for elements in (100, 1 << 20) for more in (0, 1)]  # a rank has `more` than the one before
    for elements, more in cases:
        seen = []
        ends = [sum(elements + more * r for r in range(rank + 1)) - 1 for rank in range(n)]
        for i in range(rounds):
            own = torch.full((elements + more * hvd.rank(),), float(i + hvd.rank()), device=device)
            rows = hvd.allgather(own, name="results")
            if side is not None:
                side.wait_stream(torch.cuda.current_stream(device))
                if more == 0 or n == 1:
                    rows.record_stream(side)
            with torch.cuda.stream(side):
                if side is not None:
                    torch.cuda._sleep(1 << 24)  # cycles: some 10 ms, which a call does not take
                seen.append(torch.stack([rows[end] for end in ends]))
            del rows
        if side is not None:
            side.synchronize()
        for i, one in enumerate(seen):
            check(one, torch.arange(float(i), i + n), f"result {i} of {elements}")
    return {"results": rounds * len(cases)}


def capture(device: torch.device) -> dict[str, float]:
    """A call in the capture of a CUDA graph is refused. Captures work after it, also beside a call of another thread."""
    x = torch.arange(8.0, device=device)
    other = torch.ones(8, device=device)
    hvd.allreduce_(other, op=hvd.Sum, name="other")  # everything is open
    assert "a CUDA graph is being captured from its stream" in refusal_of(x)
    side = torch.cuda.Stream(device)
    captured, called = threading.Event(), threading.Event()

    def call_meanwhile() -> None:
        torch.cuda.set_device(device)
        captured.wait(60)
        with torch.cuda.stream(side):
            hvd.allreduce_(other, op=hvd.Sum, name="other")
        called.set()

    thread = threading.Thread(target=call_meanwhile)
    thread.start()
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        twice = x * 2
        captured.set()
        assert called.wait(60), "a call of another thread does not end while a graph is captured"
        twice = twice + 1
    thread.join()
    torch.cuda.current_stream(device).wait_stream(side)
    for step in range(3):
        x.fill_(step)
        graph.replay()
        total = hvd.allreduce(twice, op=hvd.Sum, name="replayed")
        check(total, torch.full((8,), (2.0 * step + 1) * hvd.size()), f"replay {step}")
    check(other, torch.full((8,), float(hvd.size() ** 2)), "the call beside a capture")
    return {"replays": 3}


def refusal_of(x: torch.Tensor) -> str:
    """What a call in a capture says; nothing if it is not refused."""
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            hvd.allreduce_async(x * 2, op=hvd.Sum, name="captured")
    except ValueError as refused:
        return str(refused)
    return ""


def devices(device: torch.device) -> dict[str, float]:
    """Several GPUs of a process, by turns: ranks use other ones in each round, and none shares one."""
    count = torch.cuda.device_count()
    for i in range(3 * count):
        own = torch.device("cuda", (hvd.local_rank() + i) % count)
        with torch.cuda.device(own):
            tensors = [torch.full((n,), float(i + hvd.rank()), device=own) for n in (5, 70_001)]
            results = hvd.grouped_allreduce(tensors, op=hvd.Sum, name="devices")
        n = hvd.size()
        for result in results:
            assert result.device == own, (result.device, own)
            check(result, torch.full(result.shape, float(n * i + n * (n - 1) // 2)), f"round {i} on {own}")
    return {"gpus": count}


def lost(device: torch.device) -> dict[str, float]:
    """The last rank ends where the others wait for it: on a GPU inside a collective that NCCL has begun."""
    x = torch.ones(1 << 20, device=device)
    hvd.allreduce_(x, op=hvd.Sum, name="x")
    is_last = hvd.rank() == hvd.size() - 1
    if is_last and device.type == "cuda":
        torch.cuda._sleep(1 << 36)  # cycles, half a minute: its part of the collective does not begin
    handle = None if is_last and device.type == "cpu" else hvd.allreduce_async_(x, op=hvd.Sum, name="x")
    hvd.barrier()  # the collective before it is in all streams
    if is_last:
        os._exit(0)
    begin = time.perf_counter()
    try:
        hvd.synchronize(handle)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        hvd.barrier()
    except hvd.HorovodInternalError:
        seconds = time.perf_counter() - begin
    else:
        raise AssertionError("a rank has ended in a collective, and nobody was told")
    assert seconds < 10, seconds
    check(torch.ones(3, device=device).sum(), torch.tensor(3.0), "the GPU afterwards")
    begin_alone()
    check(hvd.allreduce(x, op=hvd.Sum, name="x"), x.cpu(), "a new session")
    return {"seconds": round(seconds, 3)}


def begin_alone() -> None:
    """A new session in this process, of this rank alone."""
    hvd.shutdown()
    for name in [name for name in os.environ if name.startswith("HOROVOD_") and name != "HOROVOD_NCCL_LIBRARY"]:
        del os.environ[name]
    hvd.init()
    assert hvd.size() == 1, hvd.size()


def memory(device: torch.device) -> dict[str, float]:
    """Lists for which the last rank has no memory to pack them in; NCCL has what it needs before that."""
    count, elements = 40, 1 << 20
    tensors = [torch.full((elements,), float(i + hvd.rank()), device=device) for i in range(count)]
    large = torch.ones(count * elements, device=device)
    hvd.allreduce_(large, op=hvd.Sum, name="large")
    hvd.barrier()
    filling = fill(device) if hvd.rank() == hvd.size() - 1 else []
    hvd.grouped_allreduce_(tensors, op=hvd.Sum, name="list")
    filled = sum(each.nbytes for each in filling)
    del filling
    n = hvd.size()
    for i, tensor in enumerate(tensors):
        check(tensor, torch.full((elements,), float(n * i + n * (n - 1) // 2)), f"tensor {i}")
    return {"filled_MiB": filled >> 20}


def fill(device: torch.device) -> list[torch.Tensor]:
    """All memory of the GPU but the last 4 MiB."""
    taken = []
    size = 1 << 34
    while size > 1 << 21:
        try:
            taken.append(torch.empty(size, dtype=torch.uint8, device=device))
        except torch.OutOfMemoryError:
            size //= 2
    return taken
