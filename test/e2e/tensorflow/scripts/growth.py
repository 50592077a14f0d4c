"""Many training steps; then no more memory, threads and descriptors than early on.

growth.py STEPS      of a function; a fifth as many eagerly
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from typing import Any

import tensorflow as tf

import horovod.tensorflow as hvd
from living_threads import living_threads

STEPS = int(sys.argv[1])
PAGE = os.sysconf("SC_PAGE_SIZE")

hvd.init()
weights = [tf.Variable(tf.ones([32, 32]) * 0.1) for _ in range(4)]
given = tf.random.stateless_normal([8, 32], seed=[1, hvd.rank()])


def step() -> Any:
    with tf.GradientTape() as tape:
        out = given
        for weight in weights:
            out = tf.tanh(out @ weight)
        loss = tf.reduce_mean(out * out)
    gradients = hvd.DistributedGradientTape(tape).gradient(loss, weights)
    for weight, gradient in zip(weights, gradients, strict=True):
        weight.assign_sub(0.01 * gradient)
    return hvd.allgather(tf.reshape(loss, [1]))


def held() -> tuple[int, int, int]:
    gc.collect()
    with open("/proc/self/statm") as file:
        memory = int(file.read().split()[1]) * PAGE
    return memory, living_threads(), len(os.listdir("/proc/self/fd"))


def measure(run: Callable[[], Any], steps: int, what: str) -> None:
    for _ in range(steps // 5):
        run()
    before = held()
    for _ in range(steps - steps // 5):
        run()
    memory, threads, descriptors = (now - then for now, then in zip(held(), before, strict=True))
    print(f"{what}: {memory // 1024} KiB, {threads} threads, {descriptors} descriptors more", flush=True)


measure(tf.function(step), STEPS, "function")
measure(step, STEPS // 5, "eager")
