"""Trains a small network on handwritten digits with JAX and optax, on any number of ranks.

horovodrun -np 2 python examples/jax_digits.py
python examples/jax_digits.py                    # one process, no launcher
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import horovod.jax as hvd

WANTED_ACCURACY = 0.95


def load_data() -> Any:
    """The 1797 digits that come with scikit-learn; a quarter is held out for the test."""
    digits = load_digits()
    images = digits.data.astype(np.float32) / 16.0
    return train_test_split(images, digits.target, test_size=0.25, random_state=1, stratify=digits.target)


def make_params(key: Any, sizes: tuple[int, ...] = (64, 64, 32, 10)) -> Any:
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        {"w": jax.random.normal(key, (fan_in, fan_out)) * (2 / fan_in) ** 0.5, "b": jnp.zeros(fan_out)}
        for key, fan_in, fan_out in zip(keys, sizes, sizes[1:], strict=False)
    ]


def predict(params: Any, x: Any) -> Any:
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def loss(params: Any, x: Any, y: Any) -> Any:
    return optax.softmax_cross_entropy_with_integer_labels(predict(params, x), y).mean()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=32, help="images per rank and step")
    parser.add_argument("--lr", type=float, default=0.003, help="learning rate for one rank")
    arguments = parser.parse_args()

    hvd.init()
    train_x, test_x, train_y, test_y = load_data()
    own = slice(hvd.rank(), None, hvd.size())
    rows = len(train_x) // hvd.size()  # the same on all ranks: so is the number of steps
    x, y = train_x[own][:rows], train_y[own][:rows]

    optimizer = hvd.DistributedOptimizer(optax.adam(arguments.lr * hvd.size() ** 0.5))
    params = make_params(jax.random.key(7 + hvd.rank()))
    state = optimizer.init(params)
    params, state = hvd.broadcast_parameters((params, state))

    @jax.jit
    def step(params: Any, state: Any, x: Any, y: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(params, x, y)
        updates, state = optimizer.update(gradients, state, params)  # reduces the gradients over all ranks
        return optax.apply_updates(params, updates), state, value

    order = np.random.default_rng(hvd.rank())
    size = arguments.batch_size
    for epoch in range(arguments.epochs):
        shuffled = order.permutation(rows)
        for first in range(0, rows - size + 1, size):
            batch = shuffled[first : first + size]
            params, state, value = step(params, state, x[batch], y[batch])
        value = hvd.allreduce(value, name="loss")
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}/{arguments.epochs}: loss {value:.4f}", flush=True)

    accuracy = float((predict(params, test_x).argmax(axis=1) == test_y).mean())
    weights = jnp.concatenate([leaf.ravel() for leaf in jax.tree_util.tree_leaves(params)])
    equal = bool((hvd.allgather(weights[None]) == weights).all())
    if hvd.rank() == 0:
        said = "bitwise equal weights" if equal else "DIFFERENT weights"
        print(f"jax: test accuracy {accuracy:.4f} (wanted {WANTED_ACCURACY}); all {hvd.size()} ranks hold {said}")
    hvd.shutdown()
    return 0 if equal and accuracy >= WANTED_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())
