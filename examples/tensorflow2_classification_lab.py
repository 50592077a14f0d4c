"""From a Keras script for one process to one for many, in six steps; what is not marked as a step is plain Keras.

    horovodrun -np 2 python examples/tensorflow2_classification_lab.py
    python examples/tensorflow2_classification_lab.py          # one process, no launcher
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

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
            tf.keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(10, activation="softmax"),
        ]
    )


def batches_of(images: Any, labels: Any, batch_size: int, seed: int) -> Any:
    """Batches without end, in another order on each rank."""
    rows = tf.data.Dataset.from_tensor_slices((images, labels))
    return rows.shuffle(2000, seed=seed).repeat().batch(batch_size)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=24, help="epochs of one rank; several share them")
    parser.add_argument("--batch-size", type=int, default=32, help="images per rank and step")
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate for one rank")
    parser.add_argument("--checkpoints", default=None, help="folder for rank 0's checkpoints")
    arguments = parser.parse_args()

    # Step 1: initialise.
    hvd.init()

    # Step 2: pin. Each process takes the GPU with its number on this host; without GPUs there is nothing to do.
    gpus = tf.config.experimental.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    if gpus:
        tf.config.experimental.set_visible_devices(gpus[hvd.local_rank()], "GPU")

    train_x, test_x, train_y, test_y = load_data()
    train = batches_of(train_x, train_y, arguments.batch_size, seed=hvd.rank())
    test = batches_of(test_x, test_y, arguments.batch_size, seed=hvd.rank())
    tf.keras.utils.set_random_seed(7 + hvd.rank())  # step 4 gives all ranks rank 0's variables
    model = make_model()

    # Step 3: wrap. The optimizer averages the gradients of all ranks; the learning rate grows with their number.
    optimizer = tf.keras.optimizers.SGD(arguments.lr * hvd.size(), momentum=0.9)
    model.compile(
        optimizer=hvd.DistributedOptimizer(optimizer), loss="sparse_categorical_crossentropy", metrics=["accuracy"]
    )

    callbacks = [
        # Step 4: broadcast. All ranks go on from rank 0's variables.
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        # Step 5: average metrics. What is printed, and what callbacks after this one see, is the mean of all ranks.
        hvd.callbacks.MetricAverageCallback(),
    ]
    folder = Path(arguments.checkpoints or tempfile.mkdtemp())
    if hvd.rank() == 0:  # one rank writes: all would write the same
        callbacks.append(tf.keras.callbacks.ModelCheckpoint(str(folder / "epoch-{epoch:02d}.keras")))

    # Step 6: divide steps and epochs. Every rank does its share of an epoch, and larger batches need fewer epochs.
    steps = len(train_x) // arguments.batch_size // hvd.size()
    test_steps = 3 * len(test_x) // arguments.batch_size // hvd.size()  # three times: ranks draw at random
    epochs = math.ceil(arguments.epochs / hvd.size())
    model.fit(
        train,
        steps_per_epoch=steps,
        epochs=epochs,
        validation_data=test,
        validation_steps=test_steps,
        callbacks=callbacks,
        verbose=2 if hvd.rank() == 0 else 0,
    )
    _, accuracy = model.evaluate(test_x, test_y, verbose=0)

    weights = np.concatenate([weight.ravel() for weight in model.get_weights()])
    everybodys = hvd.allgather(weights[None]).numpy()
    equal = bool((everybodys == weights).all())
    if hvd.rank() == 0:
        said = "bitwise equal variables" if equal else "DIFFERENT variables"
        print(f"{int(model.optimizer.iterations)} steps in {epochs} epochs", flush=True)
        print(
            f"test accuracy {accuracy:.4f} (wanted {WANTED_ACCURACY}); all {hvd.size()} ranks hold {said}", flush=True
        )
    hvd.shutdown()
    return 0 if equal and accuracy >= WANTED_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())
