"""Trains a small network on handwritten digits with model.fit(), on as many ranks as it is started with.

    horovodrun -np 2 python examples/tensorflow2_keras_digits.py
    python examples/tensorflow2_keras_digits.py                # one process, no launcher
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import horovod.tensorflow.keras as hvd

WANTED_ACCURACY = 0.95


def load_data() -> Any:
    """The 1797 digits that come with scikit-learn; a quarter is held out for the test."""
    digits = load_digits()
    images = digits.images[..., None].astype(np.float32) / 16.0
    return train_test_split(images, digits.target, test_size=0.25, random_state=1, stratify=digits.target)


def make_model() -> Any:
    return tf.keras.Sequential(
        [
            tf.keras.layers.Input((8, 8, 1)),
            tf.keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
            tf.keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Dropout(0.1),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=32, help="images per rank and step")
    parser.add_argument("--lr", type=float, default=0.004, help="learning rate for one rank")
    parser.add_argument("--checkpoints", default=None, help="folder for rank 0's checkpoints")
    arguments = parser.parse_args()

    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    tf.keras.utils.set_random_seed(7 + hvd.rank())  # the callback below gives all ranks rank 0's variables

    train_x, test_x, train_y, test_y = load_data()
    own = slice(hvd.rank(), None, hvd.size())
    rows = len(train_x) // hvd.size()  # the same on all ranks: so is the number of steps
    rate = arguments.lr * hvd.size() ** 0.5
    model = make_model()
    model.compile(
        optimizer=hvd.DistributedOptimizer(tf.keras.optimizers.Adam(rate)),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        experimental_run_tf_function=False,  # scripts of TensorFlow 2.0 have it; it means nothing any more
    )
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(initial_lr=rate, warmup_epochs=3),
    ]
    folder = Path(arguments.checkpoints or tempfile.mkdtemp())
    if hvd.rank() == 0:  # one rank writes: all would write the same
        callbacks.append(tf.keras.callbacks.ModelCheckpoint(str(folder / "epoch-{epoch:02d}.keras")))
    model.fit(
        train_x[own][:rows],
        train_y[own][:rows],
        batch_size=arguments.batch_size,
        epochs=arguments.epochs,
        callbacks=callbacks,
        verbose=2 if hvd.rank() == 0 else 0,
    )
    _, accuracy = model.evaluate(test_x, test_y, verbose=0)

    weights = np.concatenate([weight.ravel() for weight in model.get_weights()])
    everybodys = hvd.allgather(weights[None]).numpy()
    equal = bool((everybodys == weights).all())
    if hvd.rank() == 0:
        said = "bitwise equal variables" if equal else "DIFFERENT variables"
        print(
            f"test accuracy {accuracy:.4f} (wanted {WANTED_ACCURACY}); all {hvd.size()} ranks hold {said}", flush=True
        )
    hvd.shutdown()
    return 0 if equal and accuracy >= WANTED_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())
