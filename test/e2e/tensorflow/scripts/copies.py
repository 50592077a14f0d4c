"""Counts how often the bytes of dense tensors are copied by a collective; run under count_copies.c on two ranks.

An allreduce reads its input and writes its output, be they the same memory or not: a tensor that runs alone is not copied.
Nor are fused ones where the ranks share memory, which they do here: pieces of them go through it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import tensorflow as tf

import horovod.tensorflow as hvd

counter = ctypes.CDLL(None)
counter.count_between.argtypes = (ctypes.c_size_t, ctypes.c_size_t)
counter.counted_copies.restype = counter.counted_bytes.restype = ctypes.c_size_t

MIB = 1 << 20
LARGE = 16 * MIB + 4096  # too large to be fused; an odd size, so that pieces of it are not taken for the whole
SMALL = 192 * 1024 + 64  # bytes; fused
COUNT = 16


def copies_of(run: Callable[[], Any], size: int) -> float:
    """How many copies of `size` bytes `run` makes, the second time."""
    run()
    counter.count_between(size, size)
    results = run()
    found = counter.counted_copies()
    counter.count_between(-1 & (2**64 - 1), 0)
    del results
    return float(found)


def check(what: str, found: float, allowed: set[float]) -> None:
    print(f"{what}: {found:g}", flush=True)
    assert found in allowed, f"{what}: {found:g} copies, allowed are {sorted(allowed)}"


def main() -> None:
    hvd.init()
    assert hvd.size() == 2
    large = tf.ones([LARGE // 4])
    root = float(hvd.rank() == 0)

    eager = copies_of(lambda: hvd.allreduce(large, op=hvd.Sum), LARGE)
    check("allreduce, eager", eager, {0})
    function = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum))
    check("allreduce of an argument, in a function", copies_of(lambda: function(large), LARGE), {0})
    temporary = tf.function(lambda x: hvd.allreduce(x * 2.0, op=hvd.Sum) + 1.0)
    check("allreduce of a temporary, in a function", copies_of(lambda: temporary(large), LARGE), {0})
    average = tf.function(lambda x: hvd.allreduce(x * 2.0) + 1.0)
    check("average of a temporary, in a function", copies_of(lambda: average(large), LARGE), {0})
    check("broadcast, eager", copies_of(lambda: hvd.broadcast(large, 0), LARGE), {root})
    gather = tf.function(lambda x: hvd.allgather(x))  # noqa: PLW0108
    check("allgather, in a function", copies_of(lambda: gather(large), LARGE), {0, 1})

    small = [tf.ones([SMALL // 4]) for _ in range(COUNT)]
    group = tf.function(lambda xs: hvd.grouped_allreduce(xs, op=hvd.Sum))
    check("fused tensors, each", copies_of(lambda: group(small), SMALL) / COUNT, {0})

    counter.count_between(LARGE, LARGE)  # the counter works
    buffer = ctypes.create_string_buffer(LARGE)
    ctypes.memmove(buffer, buffer, LARGE)
    counter.memmove(buffer, buffer, ctypes.c_size_t(LARGE))
    assert counter.counted_copies() >= 1, "nothing is counted"
    print("counted")


if __name__ == "__main__":
    main()
