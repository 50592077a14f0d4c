"""Trains for ever. Rank 1 ends in the way that is asked for; the others say what fit() raised, and when.

KERAS_BACKEND=jax horovodrun -np 3 python fit_until_lost.py kill|interrupt
"""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any

import keras
import numpy as np

import horovod.keras as hvd
from ends import END_IN_STEP, end, hearing
from horovod import _core


class EndInStep(keras.callbacks.Callback):  # type: ignore[misc]
    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
        if batch == END_IN_STEP:
            if sys.argv[1] == "stall" and hvd.rank() != 1:
                let_steps_end()
            end(hvd.rank())


def let_steps_end() -> None:
    """XLA may still compute the step before, and its operations have the names of those of the next."""
    while _core.pending_operations():
        time.sleep(0.01)


def dense() -> Any:
    """A small model: XLA computes its steps on the main thread."""
    layers = keras.layers
    return keras.Sequential([layers.Input((50,)), layers.Dense(20, activation="relu"), layers.Dense(1)]), (50,)


def convolutions() -> Any:
    """A larger one: XLA computes its steps on threads of its own, while the main thread waits for them."""
    layers = keras.layers
    shape = (8, 8, 1)
    return (
        keras.Sequential(
            [
                layers.Input(shape),
                layers.Conv2D(16, 3, padding="same", activation="relu"),
                layers.Conv2D(32, 3, padding="same", activation="relu"),
                layers.Flatten(),
                layers.Dense(64, activation="relu"),
                layers.Dense(1),
            ]
        ),
        shape,
    )


MODELS = {"dense": dense, "convolutions": convolutions}


def main() -> None:
    hvd.init()
    model, features = MODELS[sys.argv[2]]()
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(1e-4)), loss="mse")
    rows = np.ones((8 * 10_000, *features), np.float32)
    targets = rows.reshape(len(rows), -1)[:, :1]
    with contextlib.suppress(Exception), hearing():
        model.fit(rows, targets, batch_size=8, epochs=1000, verbose=0, callbacks=[EndInStep()])


if __name__ == "__main__":
    main()
