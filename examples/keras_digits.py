"""Trains a small network on handwritten digits with Keras 3, on any of its backends and any number of ranks.

KERAS_BACKEND=torch horovodrun -np 2 python examples/keras_digits.py
KERAS_BACKEND=jax   horovodrun -np 2 python examples/keras_digits.py
KERAS_BACKEND=jax   python examples/keras_digits.py                    # one process, no launcher
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import keras
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import horovod.keras as hvd

WANTED_ACCURACY = 0.95


def load_data() -> Any:
    """The 1797 digits that come with scikit-learn; a quarter is held out for the test."""
    digits = load_digits()
    images = digits.images[..., None].astype(np.float32) / 16.0
    return train_test_split(images, digits.target, test_size=0.25, random_state=1, stratify=digits.target)


def make_model() -> Any:
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((8, 8, 1)),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Dropout(0.1),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10),
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=32, help="images per rank and step")
    parser.add_argument("--lr", type=float, default=0.004, help="learning rate for one rank")
    arguments = parser.parse_args()

    hvd.init()
    keras.utils.set_random_seed(7 + hvd.rank())  # the callback below gives all ranks rank 0's variables

    train_x, test_x, train_y, test_y = load_data()
    own = slice(hvd.rank(), None, hvd.size())
    rows = len(train_x) // hvd.size()  # the same on all ranks: so is the number of steps
    rate = arguments.lr * hvd.size() ** 0.5
    model = make_model()
    model.compile(
        optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(rate)),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(
        train_x[own][:rows],
        train_y[own][:rows],
        batch_size=arguments.batch_size,
        epochs=arguments.epochs,
        callbacks=[
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd.callbacks.MetricAverageCallback(),
            hvd.callbacks.LearningRateWarmupCallback(initial_lr=rate, warmup_epochs=3),
        ],
        verbose=2 if hvd.rank() == 0 else 0,
    )
    _, accuracy = model.evaluate(test_x, test_y, verbose=0)

    weights = np.concatenate([weight.ravel() for weight in model.get_weights()])
    everybodys = keras.ops.convert_to_numpy(hvd.allgather(weights[None]))
    equal = bool((everybodys == weights).all())
    if hvd.rank() == 0:
        said = "bitwise equal weights" if equal else "DIFFERENT weights"
        print(
            f"{keras.backend.backend()}: test accuracy {accuracy:.4f} (wanted {WANTED_ACCURACY}); "
            f"all {hvd.size()} ranks hold {said}",
            flush=True,
        )
    hvd.shutdown()
    return 0 if equal and accuracy >= WANTED_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())
