"""Rank 0 waits for rank 1 in every way there is, and gets Ctrl-C meanwhile. Then both go on together."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
from when_waiting import when_waiting

INTERRUPTED = sys.argv[1]  # a folder that is there once rank 0 has been, with a handler of its own
ONES = tf.ones([4])
interrupts: list[float] = []  # when each was


def eager() -> Any:
    return hvd.allreduce(ONES)


def gather() -> Any:
    return hvd.allgather(ONES)


def objects() -> Any:
    return hvd.broadcast_object({"epoch": 1})


@tf.function
def function() -> Any:
    return hvd.allreduce(ONES, name="in_function")


@tf.function
def loop() -> Any:
    return tf.map_fn(lambda row: hvd.allreduce(row, name="in_loop"), tf.ones([3, 2]))


def gradient() -> Any:
    weight = tf.Variable([1.0, 2.0])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(weight * weight)
    return hvd.DistributedGradientTape(tape).gradient(loss, [weight])


def session() -> Any:
    with tf.Graph().as_default(), tf.compat.v1.Session() as running:
        return running.run(hvd.allreduce(tf.ones([4]), name="in_session"))


def monitored_session() -> Any:
    with tf.Graph().as_default():
        reduced = hvd.allreduce(tf.ones([4]), name="in_monitored_session")
        with tf.compat.v1.train.MonitoredTrainingSession() as running:
            return running.run(reduced)


def fit() -> Any:
    model = tf.keras.Sequential([tf.keras.layers.Input([3]), tf.keras.layers.Dense(2)])
    model.compile(hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), "mse")
    return model.fit(np.ones([64, 3]), np.ones([64, 2]), verbose=0)


@tf.function(jit_compile=True)
def compiled() -> Any:
    return hvd.allreduce(ONES, name="compiled")


def interrupt() -> None:
    interrupts.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)


def meet() -> None:
    """Another operation than those above, which go on: their names are taken until rank 1 has joined in."""
    assert hvd.alltoall(tf.ones([2])).numpy().tolist() == [1.0, 1.0]


def interrupted(wait: Callable[[], Any]) -> str:
    alarm = when_waiting(interrupt)
    try:
        wait()
    except KeyboardInterrupt:
        took = time.monotonic() - interrupts[-1]
        alarm.join()
        return f"interrupted after {took:.2f} s"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return "never"


def end_of_the_session() -> str:
    """Rank 1 learns of an interrupt inside XLA, where no operation can go on without its program."""
    try:
        meet()
    except tf.errors.UnknownError as error:
        return "ended" if "rank 0" in str(error) and "interrupted by Ctrl-C" in str(error) else str(error)
    return "goes on"


def main() -> None:
    hvd.init()
    assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    for wait in (eager, gather, objects, function, loop, gradient, session, monitored_session, fit):
        if hvd.rank() == 0:
            print(f"{wait.__name__}: {interrupted(wait)}", flush=True)
        meet()
    if hvd.rank() == 0:
        seen: list[int] = []
        before = signal.signal(signal.SIGINT, lambda *_: seen.append(1))
        alarm = when_waiting(lambda: (interrupt(), os.mkdir(INTERRUPTED)))
        meet()  # to which rank 1 comes after the interrupt
        alarm.join()
        signal.signal(signal.SIGINT, before)
        print(f"handler of the program: called {len(seen)} times, the operation went on", flush=True)
    else:
        while not os.path.exists(INTERRUPTED):
            time.sleep(0.01)
        meet()
    meet()
    if tuple(int(part) for part in tf.__version__.split(".")[:2]) >= (2, 18):
        if hvd.rank() == 0:
            print(f"compiled: {interrupted(compiled)}", flush=True)
        print(f"session of rank {hvd.rank()}: {end_of_the_session()}", flush=True)
    hvd.shutdown()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.set_wakeup_fd(-1) == -1
    print("done", flush=True)


if __name__ == "__main__":
    main()
