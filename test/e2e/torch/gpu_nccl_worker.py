"""Collectives of processes over the fake NCCL. argv: the driver, NCCL, the case, a file that a rank may make."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import horovod.torch as hvd
from fake_gpu import load_driver, load_nccl, put, values_at, values_of
from horovod._common.native import core

fake, nccl = load_driver(sys.argv[1]), load_nccl(sys.argv[2])
hvd.init()
rank, gpu = hvd.rank(), hvd.local_rank()
stream = fake.fake_cuda_stream(gpu)
place = (gpu, stream, None)
SUM = (core.REDUCE_SUM, 1.0, 1.0, 0)
AVERAGE = (core.REDUCE_AVERAGE, 1.0, 1.0, 0)
F32 = core.DTYPE_FLOAT32


def calls(name: str) -> int:
    return int(nccl.fake_nccl_calls(name.encode()))


def run(op: int, name: str, values: torch.Tensor, function: str, reduction: Any = SUM, **more: Any) -> tuple[Any, int]:
    """The handle of an operation that has ended, and where its tensor is: it was `function` of NCCL that did it."""
    before = calls(function)
    data = put(fake, gpu, values)
    in_place = op in (core.OP_ALLREDUCE, core.OP_BROADCAST)
    dtype = more.get("dtype", F32)
    call = (op, name, more.get("root", -1), more.get("splits", ()))
    handle = core.enqueue(call, (data, data if in_place else 0, tuple(values.shape), dtype, place), reduction, None)
    handle.wait()
    assert calls(function) > before, f"{name} is no {function}"
    return handle, data


def run_all() -> None:
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8):
        code = getattr(core, "DTYPE_" + str(dtype).removeprefix("torch.").upper())
        for op, expected in (("SUM", [3, 7]), ("MIN", [1, 3]), ("MAX", [2, 4]), ("PRODUCT", [2, 12])):
            mine = torch.tensor([rank + 1, rank + 3], dtype=dtype)
            reduction = (getattr(core, f"REDUCE_{op}"), 1.0, 1.0, 0)
            _, at = run(core.OP_ALLREDUCE, f"{dtype} {op}", mine, "ncclAllReduce", reduction, dtype=code)
            assert values_at(at, 2, dtype) == expected, (dtype, op)
    _, at = run(core.OP_ALLREDUCE, "average", torch.full((100_000,), rank + 1.0), "ncclAllReduce", AVERAGE)
    assert values_at(at, 100_000) == [1.5] * 100_000

    before = calls("ncclAllReduce")
    sizes = (3, 1, 700)
    addresses = [put(fake, gpu, torch.full((n,), float(rank + n))) for n in sizes]
    entries = [(at, at, (n,), F32, place) for at, n in zip(addresses, sizes, strict=True)]
    core.enqueue_group((core.OP_ALLREDUCE, "list", -1, ()), entries, SUM, None).wait()
    assert calls("ncclAllReduce") == before + 1
    assert (calls("ncclMemAlloc") > 0) == (sys.argv[3] == "nothing"), "memory that NCCL knows"
    for at, n in zip(addresses, sizes, strict=True):
        assert values_at(at, n) == [2.0 * n + 1] * n

    _, at = run(core.OP_BROADCAST, "root", torch.full((4,), rank + 5.0), "ncclBroadcast", root=1)
    assert values_at(at, 4) == [6.0] * 4
    handle, _ = run(core.OP_ALLGATHER, "even", torch.full((2,), float(rank)), "ncclAllGather")
    assert values_of(handle, gpu, 4) == [0.0, 0.0, 1.0, 1.0]
    handle, _ = run(core.OP_ALLGATHER, "uneven", torch.full((rank + 1,), float(rank)), "ncclBroadcast")
    assert values_of(handle, gpu, 3) == [0.0, 1.0, 1.0]
    parts = torch.arange(3.0) + 10 * rank  # rank 0 gives 1 and 2 rows, rank 1 gives 2 and 1
    handle, _ = run(core.OP_ALLTOALL, "parts", parts, "ncclSend", splits=(rank + 1, 2 - rank))
    assert values_of(handle, gpu, 3) == ([0.0, 10.0, 11.0] if rank == 0 else [1.0, 2.0, 12.0])
    handle, _ = run(core.OP_REDUCESCATTER, "even parts", torch.arange(4.0) * (rank + 1), "ncclReduceScatter")
    assert values_of(handle, gpu, 2) == ([0.0, 3.0] if rank == 0 else [6.0, 9.0])
    handle, _ = run(core.OP_REDUCESCATTER, "uneven parts", torch.arange(3.0) * (rank + 1), "ncclReduce")
    assert values_of(handle, gpu, 2 - rank) == ([0.0, 3.0] if rank == 0 else [6.0])
    assert fake.fake_cuda_calls(b"cuMemHostAlloc") == 0, "went through host memory"


def wait_until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.001)


def sum_that_is_lost() -> Any:
    """The launcher's SIGTERM, 1 s after the loss, does not end this rank."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    data = put(fake, gpu, torch.ones(3))
    return core.enqueue((core.OP_ALLREDUCE, "lost", -1, ()), (data, data, (3,), F32, place), SUM, None)


def lose_a_peer() -> None:
    """Rank 1 holds its stream and dies when rank 0 waits for it in a collective, in NCCL."""
    inside = Path(sys.argv[4])
    if rank == 1:
        fake.fake_cuda_hold(stream)
    handle = sum_that_is_lost()
    if rank == 1:
        wait_until(lambda: calls("ncclAllReduce") == 1 and inside.exists(), "rank 0 is not in the collective")
        os.kill(os.getpid(), signal.SIGKILL)
    wait_until(lambda: nccl.fake_nccl_running(gpu) == 1, "no collective is in the stream")
    inside.touch()
    with pytest.raises(hvd.HorovodInternalError, match="rank 1"):
        handle.wait()
    wait_until(lambda: nccl.fake_nccl_running(gpu) == 0, "the collective goes on")
    assert calls("ncclCommAbort") == 1
    print("heard of the loss", flush=True)


def lose_who_has_not_come() -> None:
    """Rank 1 dies before it joins the communicator, in which rank 0 waits for it."""
    inside = Path(sys.argv[4])
    if rank == 1:
        nccl.fake_nccl_hold_joins(gpu)
    handle = sum_that_is_lost()
    if rank == 1:
        wait_until(lambda: nccl.fake_nccl_held_joins() == 1 and inside.exists(), "rank 0 does not wait in NCCL")
        os.kill(os.getpid(), signal.SIGKILL)
    wait_until(lambda: nccl.fake_nccl_alive(b"communicator") == 1, "no communicator is being made")
    lost = time.monotonic()
    inside.touch()
    with pytest.raises(hvd.HorovodInternalError, match="rank 1"):
        handle.wait()
    assert time.monotonic() - lost < 30, "it waited for NCCL"
    wait_until(lambda: nccl.fake_nccl_alive(b"communicator") == 0, "the communicator is still there")
    assert calls("ncclCommAbort") == 1
    assert calls("ncclAllReduce") == 0
    print("heard of the loss", flush=True)


def start_without_a_member() -> None:
    """Rank 0 waits in vain for rank 1, whose NCCL does not start: both go through the host."""
    if rank == 1:
        nccl.fake_nccl_fail(b"ncclCommInitRankConfig", 0, 2)
    _, at = run(core.OP_ALLREDUCE, "host", torch.ones(3), "ncclCommInitRankConfig")
    assert values_at(at, 3) == [2.0] * 3
    assert calls("ncclAllReduce") == 0
    wait_until(lambda: calls("ncclCommAbort") == 1 - rank, "rank 0 keeps its communicator")  # a thread aborts it
    assert fake.fake_cuda_calls(b"cuMemHostAlloc") > 0


cases = {
    "nothing": run_all,
    "memory is not registered": run_all,
    "a member dies": lose_a_peer,
    "a member dies before it joins": lose_who_has_not_come,
    "a member does not start": start_without_a_member,
}
cases[sys.argv[3]]()
hvd.shutdown()
if sys.argv[3] == "a member does not start":
    assert calls("ncclCommAbort") == 1 - rank, "who had no communicator has none to abort"
assert nccl.fake_nccl_alive(b"communicator") == 0
assert nccl.fake_nccl_alive(b"memory") == 0
for breaches in (nccl.fake_nccl_breaches(), fake.fake_cuda_breaches()):
    assert breaches == b"", breaches
print("nccl ok", flush=True)
