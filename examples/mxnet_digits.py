"""Trains a small network on handwritten digits with MXNet's Gluon, on any number of ranks.

horovodrun -np 2 python examples/mxnet_digits.py
python examples/mxnet_digits.py                    # one process, no launcher
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import mxnet as mx
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import horovod.mxnet as hvd

WANTED_ACCURACY = 0.95


def load_data() -> Any:
    """The 1797 digits that come with scikit-learn; a quarter is held out for the test."""
    digits = load_digits()
    images = digits.data.astype(np.float32) / 16.0
    return train_test_split(images, digits.target, test_size=0.25, random_state=1, stratify=digits.target)


def make_net() -> Any:
    """The first layer's weights get their shape with the first batch: they are broadcast then."""
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Dense(64, activation="relu"), mx.gluon.nn.Dense(32, activation="relu"), mx.gluon.nn.Dense(10))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    return net


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=32, help="images per rank and step")
    parser.add_argument("--lr", type=float, default=0.003, help="learning rate for one rank")
    arguments = parser.parse_args()

    hvd.init()
    mx.random.seed(7 + hvd.rank())
    train_x, test_x, train_y, test_y = load_data()
    own = slice(hvd.rank(), None, hvd.size())
    rows = len(train_x) // hvd.size()  # the same on all ranks: so is the number of steps
    x, y = mx.nd.array(train_x[own][:rows]), mx.nd.array(train_y[own][:rows])

    net = make_net()
    hvd.broadcast_parameters(net.collect_params())
    rate = arguments.lr * hvd.size() ** 0.5
    trainer = hvd.DistributedTrainer(net.collect_params(), "adam", {"learning_rate": rate})
    loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()

    order = np.random.default_rng(hvd.rank())
    size = arguments.batch_size
    for epoch in range(arguments.epochs):
        shuffled = order.permutation(rows)
        for first in range(0, rows - size + 1, size):
            batch = shuffled[first : first + size]
            with mx.autograd.record():
                value = loss(net(x[batch]), y[batch])
            value.backward()
            trainer.step(size)  # averages the gradients over all ranks
        mean = hvd.allreduce(value.mean(), name="loss")
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}/{arguments.epochs}: loss {mean.asscalar():.4f}", flush=True)

    accuracy = float((net(mx.nd.array(test_x)).argmax(axis=1).asnumpy() == test_y).mean())
    weights = mx.nd.concat(*[parameter.data().reshape(-1) for parameter in net.collect_params().values()], dim=0)
    equal = bool((hvd.allgather(weights.expand_dims(0)) == weights.expand_dims(0)).min().asscalar())
    if hvd.rank() == 0:
        said = "bitwise equal weights" if equal else "DIFFERENT weights"
        print(f"mxnet: test accuracy {accuracy:.4f} (wanted {WANTED_ACCURACY}); all {hvd.size()} ranks hold {said}")
    hvd.shutdown()
    return 0 if equal and accuracy >= WANTED_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())
