"""Tensors on the fake driver's GPUs, handed over as horovod.torch hands over CUDA tensors. argv[1]: the driver."""

import ctypes
import sys
from types import SimpleNamespace
from unittest import mock

import pytest
import torch

import horovod.torch as hvd
from fake_gpu import OnGpu, load_driver, put, values_at, values_of
from horovod._common.native import core
from horovod.torch._tensors import current_stream, place_of, transferable

fake = load_driver(sys.argv[1])

hvd.init()
rank, size = hvd.rank(), hvd.size()
gpu = hvd.local_rank()
stream, side = fake.fake_cuda_stream(gpu), fake.fake_cuda_stream(gpu)


def on_gpu(values: list[float]) -> int:
    return put(fake, gpu, torch.tensor(values))


# What stands for a CUDA tensor on a torch that knows none: the stream that is current goes along.
tensor = SimpleNamespace(
    is_cpu=False, is_cuda=True, dtype=torch.float32, get_device=lambda: gpu, is_contiguous=lambda: True, is_neg=lambda: False
)  # fmt: skip
with mock.patch.object(torch.cuda, "current_stream", return_value=SimpleNamespace(cuda_stream=stream)):
    place = place_of(tensor)  # type: ignore[arg-type]
assert place == (gpu, stream, current_stream)
place = (gpu, stream, None)  # whoever waits does so until the GPU is done
assert transferable(tensor, "allreduce") == core.DTYPE_FLOAT32  # type: ignore[arg-type]

SUM = (core.REDUCE_SUM, 1.0, 1.0, 0)
data = on_gpu([rank + 1.0] * 3)
core.enqueue((core.OP_ALLREDUCE, "one", -1, ()), (data, data, (3,), core.DTYPE_FLOAT32, place), SUM, None).wait()
assert values_at(data, 3) == [3.0] * 3

repeated = core.RepeatedAllreduce("repeated", (3,), core.DTYPE_FLOAT32, SUM)
for expected in (6.0, 12.0):
    repeated.start(data, (3,), None, place)
    repeated.wait()
    assert values_at(data, 3) == [expected] * 3

rows = [on_gpu([float(rank)] * (rank + 1)) for _ in range(2)]
entries = [(address, 0, (rank + 1,), core.DTYPE_FLOAT32, place) for address in rows]
handles = core.enqueue_group((core.OP_ALLGATHER, "rows", -1, ()), entries, SUM, None).handles()
core.wait_all(handles)
for handle in handles:
    assert values_of(handle, gpu, 3) == [0.0, 1.0, 1.0]

# Memory for a result whose shape the caller guesses: right for one of a group, wrong for the other.
guessed = [on_gpu([0.0] * 3) for _ in range(2)]
shapes = [(3,), (2,)]
for alone in (True, False):
    entries = [
        (address, (room, shape), (rank + 1,), core.DTYPE_FLOAT32, place)
        for address, room, shape in zip(rows, guessed, shapes, strict=True)
    ]
    if alone:
        group = [core.enqueue((core.OP_ALLGATHER, f"row {i}", -1, ()), entry, SUM, None, i) for i, entry in enumerate(entries)]
        assert [handle.wait() for handle in group] == [0, None]
    else:
        together = core.enqueue_group((core.OP_ALLGATHER, "guessed", -1, ()), entries, SUM, None, [0, 1])
        assert together.wait() == [0, None]
        group = together.handles()
    assert [handle.result() for handle in group] == [0, None]
    assert values_at(guessed[0], 3) == [0.0, 1.0, 1.0]
    with pytest.raises(ValueError, match="it wrote to the given memory"):
        group[0].output_dlpack()
    assert values_of(group[1], gpu, 3) == [0.0, 1.0, 1.0]
    assert values_at(guessed[1], 3) == [0.0] * 3
    ctypes.memset(guessed[0], 0, 12)

# As the core reads them itself, for which it asks once what stream is current, and refuses what is on several GPUs.
streams_of: list[int] = []
one, many, start = core.tensor_calls((OnGpu,), lambda device: streams_of.append(device) or stream)  # type: ignore[misc]
first, second = (OnGpu(gpu, on_gpu([rank + 1.0] * 3), 3) for _ in range(2))
assert one(core.OP_ALLREDUCE, "read", -1, first, second, *SUM, True).wait() is second
fake.fake_cuda_synchronize(stream)
assert values_at(first.address, 3) == [rank + 1.0] * 3
assert values_at(second.address, 3) == [3.0] * 3
assert streams_of == [gpu, gpu]  # for the call, and for who waits
group = many((core.OP_ALLREDUCE, "both", -1, ()), [first, second], SUM)
assert len(streams_of) == 3
assert group.wait() == [first, second]
fake.fake_cuda_synchronize(stream)
assert values_at(first.address, 3) == [3.0] * 3
assert values_at(second.address, 3) == [6.0] * 3
assert start(repeated, first)
repeated.wait()
fake.fake_cuda_synchronize(stream)
assert values_at(first.address, 3) == [6.0] * 3
elsewhere = OnGpu((gpu + 1) % 4, on_gpu([0.0] * 3), 3)
assert many((core.OP_ALLREDUCE, "apart", -1, ()), [first, elsewhere], SUM) is None
assert one(core.OP_ALLREDUCE, "apart", -1, first, elsewhere, *SUM, True) is None

with pytest.raises(ValueError, match="there is no GPU 7"):
    core.enqueue((core.OP_ALLREDUCE, "bad", -1, ()), (data, data, (3,), core.DTYPE_FLOAT32, (7, 0, None)), SUM, None)

# Without a wait for the GPU: the stream that is current waits, once for those of a group, also for a step's gradients.
asked: list[int] = []
place = (gpu, stream, lambda device: asked.append(device) or side)
for step in range(1, 4):
    ctypes.memmove(data, (ctypes.c_float * 3)(1.0, 2.0, step), 12)
    ctypes.memmove(rows[0], (ctypes.c_float * 1)(step), 4)
    entries = [(address, address, (1,), core.DTYPE_FLOAT32, place) for address in (data, rows[0])]
    group = core.enqueue_group((core.OP_ALLREDUCE, "group", -1, ()), entries, SUM, None, ["a", "b"])
    repeated.start(rows[1], (1,), None, place)
    assert core.wait_all([*group.handles(), repeated])[:2] == ["a", "b"]
    fake.fake_cuda_synchronize(side)
    assert values_at(data, 3) == [2.0, 2.0, step]
    assert values_at(rows[0], 1) == [2.0 * step]
assert set(asked) == {gpu}
assert 3 <= len(asked) <= 6  # a group is one batch, and the third may be in it
fake.fake_cuda_set_capturing(side, 1)
handle = core.enqueue((core.OP_ALLREDUCE, "one", -1, ()), (data, data, (3,), core.DTYPE_FLOAT32, place), SUM, None)
with pytest.raises(ValueError, match="a CUDA graph is being captured"):
    handle.wait()
fake.fake_cuda_set_capturing(side, 0)
handle.wait()
del handles, handle, group, repeated
fake.fake_cuda_end_stream(side)
hvd.shutdown()
assert fake.fake_cuda_alive(b"event") == 0
assert fake.fake_cuda_alive(b"pinned") == 0
assert fake.fake_cuda_breaches() == b""
print("gpu tensors ok", flush=True)
