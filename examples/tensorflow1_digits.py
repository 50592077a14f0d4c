"""Trains a small network on handwritten digits, written as for TensorFlow 1: a graph, a session, hooks.

    horovodrun -np 2 python examples/tensorflow1_digits.py
    python examples/tensorflow1_digits.py                      # one process, no launcher

They run on TensorFlow 2 through tf.compat.v1. tf.layers went with Keras 2: plain variables here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import horovod.tensorflow as hvd

tf1 = tf.compat.v1
WANTED_ACCURACY = 0.95
PIXELS, HIDDEN, CLASSES = 64, 64, 10


def load_data() -> Any:
    """The 1797 digits that come with scikit-learn; a quarter is held out for the test."""
    digits = load_digits()
    images = digits.data.astype(np.float32) / 16.0
    return train_test_split(images, digits.target, test_size=0.25, random_state=1, stratify=digits.target)


def batches(images: Any, labels: Any, batch_size: int, seed: int) -> Iterator[tuple[Any, Any]]:
    """Batches of one size, in a new order each time through the data, without end."""
    order = np.random.default_rng(seed)
    while True:
        shuffled = order.permutation(len(images))
        for begin in range(0, len(images) - batch_size + 1, batch_size):
            chosen = shuffled[begin : begin + batch_size]
            yield images[chosen], labels[chosen]


def layer(name: str, given: Any, rows: int, columns: int) -> Any:
    with tf1.variable_scope(name):
        kernel = tf1.get_variable("kernel", [rows, columns], initializer=tf1.glorot_uniform_initializer())
        bias = tf1.get_variable("bias", [columns], initializer=tf1.zeros_initializer())
    return tf.matmul(given, kernel) + bias


def build_model(images: Any, labels: Any) -> tuple[Any, Any]:
    """The loss, and how many images are recognised."""
    logits = layer("out", tf.nn.relu(layer("hidden", images, PIXELS, HIDDEN)), HIDDEN, CLASSES)
    loss = tf1.losses.sparse_softmax_cross_entropy(labels, logits)
    right = tf.reduce_sum(tf.cast(tf.equal(tf.argmax(logits, 1), labels), tf.int64))
    return loss, right


class EvaluateAtEnd(tf1.train.SessionRunHook):
    """Runs tensors once more when training has ended, before the session closes."""

    def __init__(self, tensors: list[Any], feed: dict[Any, Any]) -> None:
        self._tensors, self._feed = tensors, feed
        self.results: list[Any] = []

    def end(self, session: Any) -> None:
        self.results = session.run(self._tensors, self._feed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1200, help="steps of all ranks together")
    parser.add_argument("--batch-size", type=int, default=32, help="images per rank and step")
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate for one rank")
    parser.add_argument("--checkpoints", default=None, help="folder for rank 0's checkpoints")
    arguments = parser.parse_args()

    hvd.init()
    tf1.disable_eager_execution()
    tf1.set_random_seed(7 + hvd.rank())  # the hook below broadcasts the variables

    train_x, test_x, train_y, test_y = load_data()
    own = slice(hvd.rank(), None, hvd.size())
    images = tf1.placeholder(tf.float32, [None, PIXELS], name="images")
    labels = tf1.placeholder(tf.int64, [None], name="labels")
    loss, right = build_model(images, labels)

    # The learning rate grows with the number of ranks, and the number of steps shrinks.
    optimizer = hvd.DistributedOptimizer(tf1.train.AdagradOptimizer(arguments.lr * hvd.size()))
    global_step = tf1.train.get_or_create_global_step()
    train_op = optimizer.minimize(loss, global_step=global_step)
    last_step = arguments.steps // hvd.size()
    counted = hvd.allreduce(tf.stack([right, tf.size(labels, out_type=tf.int64)]), op=hvd.Sum, name="counted")
    mean_loss = hvd.allreduce(loss, name="mean_loss")
    weights = tf.concat([tf.reshape(one, [1, -1]) for one in tf1.trainable_variables()], axis=1)
    everybodys = hvd.allgather(weights, name="everybodys_weights")

    # Each rank takes the GPU with its number on this host; without GPUs this has no effect.
    config = tf1.ConfigProto()
    config.gpu_options.allow_growth = True
    config.gpu_options.visible_device_list = str(hvd.local_rank())

    at_end = EvaluateAtEnd([counted, everybodys], {images: test_x[own], labels: test_y[own]})
    hooks = [hvd.BroadcastGlobalVariablesHook(0), tf1.train.StopAtStepHook(last_step=last_step), at_end]
    folder = arguments.checkpoints if hvd.rank() == 0 else None  # one rank writes: all would write the same
    train = batches(train_x[own], train_y[own], arguments.batch_size, seed=hvd.rank())
    with tf1.train.MonitoredTrainingSession(checkpoint_dir=folder, hooks=hooks, config=config) as session:
        while not session.should_stop():
            some_images, some_labels = next(train)
            _, now, step = session.run([train_op, mean_loss, global_step], {images: some_images, labels: some_labels})
            if hvd.rank() == 0 and step % 100 == 0:
                print(f"step {step}/{last_step}: loss {now:.4f}", flush=True)

    (recognised, images_in_test), everybodys_weights = at_end.results
    accuracy = recognised / images_in_test
    equal = all((other == everybodys_weights[0]).all() for other in everybodys_weights)
    if hvd.rank() == 0:
        said = "bitwise equal variables" if equal else "DIFFERENT variables"
        print(
            f"test accuracy {accuracy:.4f} (wanted {WANTED_ACCURACY}); all {hvd.size()} ranks hold {said}", flush=True
        )
    hvd.shutdown()
    return 0 if equal and accuracy >= WANTED_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())
