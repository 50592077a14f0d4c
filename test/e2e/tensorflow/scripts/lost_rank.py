"""All ranks train; the last one leaves in the middle, in the way that is asked for. The others say what they see.

lost_rank.py MODE HOW      MODE: eager, function, session, fit; HOW: kill, interrupt, raise, op, exit
"""

from __future__ import annotations

import itertools
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

MODE, HOW = sys.argv[1:]
STEPS = 5
WEIGHTS = [tf.Variable(tf.ones([100, 100])) for _ in range(4)]


def leave() -> None:
    print("leaves", time.time(), flush=True)
    if HOW == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if HOW == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
    if HOW == "raise":
        raise KeyError("oops")
    if HOW == "exit":
        sys.exit(0)


def until(step: int) -> None:
    if step == STEPS and hvd.rank() == hvd.size() - 1 and HOW != "op":
        leave()


def fails_in_the_graph(step: Any) -> Any:
    if int(step) == STEPS and hvd.rank() == hvd.size() - 1:
        print("leaves", time.time(), flush=True)
        raise KeyError("oops")
    return np.float32(1.0)


def eager() -> Callable[[int], Any]:
    return lambda step: [hvd.allreduce(weight) for weight in WEIGHTS]


def function() -> Callable[[int], Any]:
    @tf.function
    def step_of(step: Any) -> Any:
        factor = tf.py_function(fails_in_the_graph, [step], tf.float32) if HOW == "op" else 1.0
        before = hvd.allreduce(WEIGHTS[0], name="before")
        return before, [hvd.allreduce(weight * factor, name=f"after_{i}") for i, weight in enumerate(WEIGHTS)]

    return lambda step: step_of(tf.constant(step))


def session() -> Callable[[int], Any]:
    graph = tf.Graph()
    with graph.as_default():
        reduced = [hvd.allreduce(tf.ones([100, 100]) * i, name=f"reduced_{i}") for i in range(4)]
    running = tf.compat.v1.Session(graph=graph)
    return lambda step: running.run(reduced)


class Leaves(tf.keras.callbacks.Callback):  # type: ignore[misc]
    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        until(batch)


def fit() -> None:
    model = tf.keras.Sequential([tf.keras.layers.Input([10]), tf.keras.layers.Dense(10)])
    model.compile(hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.001)), "mse")
    endless = tf.data.Dataset.from_tensors((tf.ones([4, 10]), tf.ones([4, 10]))).repeat()
    model.fit(endless, steps_per_epoch=1000000, verbose=0, callbacks=[Leaves()])


def train() -> None:
    if MODE == "fit":
        fit()
        return
    run = {"eager": eager, "function": function, "session": session}[MODE]()
    for step in itertools.count():
        until(step)
        run(step)


def main() -> None:
    hvd.init()
    try:
        train()
    except tf.errors.UnknownError as error:
        if hvd.rank() == hvd.size() - 1:
            raise  # its own
        print("noticed", time.time(), type(error).__name__, str(error).replace("\n", " "), flush=True)
        sys.exit(3)


if __name__ == "__main__":
    main()
