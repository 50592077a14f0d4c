"""torch and TensorFlow in one process, imported in the order that is asked for, with one session and one libgloo."""

from __future__ import annotations

import sys

if sys.argv[1] == "torch":
    import torch

    import horovod.torch as hvd_torch

import tensorflow as tf

import horovod.tensorflow as hvd_tf

if sys.argv[1] == "tensorflow":
    import torch

    import horovod.torch as hvd_torch

from horovod._common.native import core

first, second = (hvd_torch, hvd_tf) if sys.argv[1] == "torch" else (hvd_tf, hvd_torch)
first.init()
assert second.is_initialized(), "one session"
second.init()
rank, size = hvd_tf.rank(), hvd_tf.size()
assert (hvd_torch.rank(), hvd_torch.size()) == (rank, size)

# Operations of both are pending at once, in another order on each rank.
SUM = float(sum(range(1, size + 1)))


@tf.function
def reduce_many() -> list[tf.Tensor]:
    return [hvd_tf.allreduce(tf.fill([100], rank + 1.0), op=hvd_tf.Sum, name=f"tf_{i}") for i in range(20)]


def begin_torch() -> list[int]:
    given = torch.full((100,), rank + 1.0)
    return [hvd_torch.allreduce_async(given, op=hvd_torch.Sum, name=f"torch_{i}") for i in range(20)]


for step in range(10):
    early = begin_torch() if (rank + step) % 2 else None
    from_tf = reduce_many()
    handles = early or begin_torch()
    assert all((one.numpy() == SUM).all() for one in from_tf)
    assert all((hvd_torch.synchronize(handle) == SUM).all() for handle in handles)

gathered = hvd_torch.allgather(torch.arange(3) + rank)
assert (gathered.numpy() == hvd_tf.allgather(tf.range(3, dtype=tf.int64) + rank).numpy()).all()
assert "torch" not in core.gloo_library(), core.gloo_library()
second.shutdown()
assert not first.is_initialized(), "one session"
print("both", core.gloo_library(), flush=True)
