"""Trains a small network on handwritten digits with a loop of its own, on as many ranks as it is started with.

    horovodrun -np 2 python examples/tensorflow2_digits.py
    python examples/tensorflow2_digits.py                      # one process, no launcher

Every rank trains on its own share of the images; the tape averages the gradients, so all ranks hold the same network.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import horovod.tensorflow as hvd

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
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )


def variables_are_equal(variables: Any) -> bool:
    """Whether all ranks hold bitwise the same variables."""
    everybodys = hvd.allgather_object([np.asarray(variable).tobytes() for variable in variables])
    return all(other == everybodys[0] for other in everybodys)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32, help="images per rank and step")
    parser.add_argument("--lr", type=float, default=0.005, help="learning rate for one rank")
    arguments = parser.parse_args()

    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    tf.keras.utils.set_random_seed(7 + hvd.rank())  # the variables are broadcast below

    train_x, test_x, train_y, test_y = load_data()
    own = slice(hvd.rank(), None, hvd.size())
    batches = tf.data.Dataset.from_tensor_slices((train_x[own], train_y[own]))
    batches = batches.shuffle(2000).batch(arguments.batch_size, drop_remainder=True)
    steps = len(train_x) // hvd.size() // arguments.batch_size  # the same on all ranks

    model = make_model()
    optimizer = tf.keras.optimizers.Adam(arguments.lr * hvd.size() ** 0.5)
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer.build(model.trainable_variables)

    @tf.function
    def train_step(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    accuracy = 0.0
    first_batch = True
    for epoch in range(arguments.epochs):
        losses = []
        for images, labels in batches.take(steps):
            losses.append(train_step(images, labels))
            if first_batch:  # now all variables exist
                hvd.broadcast_variables(model.variables, root_rank=0)
                hvd.broadcast_variables(optimizer.variables, root_rank=0)
                first_batch = False
        loss = float(hvd.allreduce(tf.reduce_mean(losses)))
        right = np.argmax(model(test_x[own]), axis=1) == test_y[own]
        counts = hvd.allreduce(tf.constant([right.sum(), len(right)]), op=hvd.Sum).numpy()
        accuracy = counts[0] / counts[1]
        if hvd.rank() == 0:
            done = f"epoch {epoch + 1}/{arguments.epochs}, {steps} steps"
            print(f"{done}: loss {loss:.4f}, test accuracy {accuracy:.4f}", flush=True)

    equal = variables_are_equal([*model.variables, *optimizer.variables])
    if hvd.rank() == 0:
        said = "bitwise equal variables" if equal else "DIFFERENT variables"
        print(
            f"test accuracy {accuracy:.4f} (wanted {WANTED_ACCURACY}); all {hvd.size()} ranks hold {said}", flush=True
        )
    hvd.shutdown()
    return 0 if equal and accuracy >= WANTED_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())
