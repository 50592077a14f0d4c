"""What the Keras rank tests share: data that every rank can compute for every rank, and models that begin alike."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

import horovod.keras as hvd

BACKEND = keras.backend.backend()
ROWS = 8  # of each rank, in each step
FEATURES = 6
REFUSAL: type[Exception] = ValueError  # of a call that cannot be
if BACKEND == "tensorflow":
    import tensorflow as tf

    REFUSAL = tf.errors.OpError


def array(value: Any) -> Any:
    """A tensor's value in numpy."""
    return np.asarray(keras.ops.convert_to_numpy(value))


def rows_of(rank: int, steps: int = 1) -> tuple[Any, Any]:
    """What `rank` trains on in `steps` steps."""
    generator = np.random.default_rng(100 + rank)
    x = generator.normal(size=(steps * ROWS, FEATURES)).astype(np.float32)
    return x, (x.sum(axis=1, keepdims=True) + rank).astype(np.float32)


def my_rows(steps: int = 1) -> tuple[Any, Any]:
    return rows_of(hvd.rank(), steps)


def all_rows(steps: int = 1) -> tuple[Any, Any]:
    """The rows of all ranks, so that each step has those of its ranks, one after another."""
    parts = [rows_of(rank, steps) for rank in range(hvd.size())]
    return tuple(
        np.concatenate([part[i][step * ROWS : (step + 1) * ROWS] for step in range(steps) for part in parts])
        for i in range(2)
    )  # type: ignore[return-value]


def make_model(optimizer: Any, seed: int | None = 1, **options: Any) -> Any:
    """Two layers. With a seed all ranks begin with the same weights."""
    layers = keras.layers
    model = keras.Sequential(
        [layers.Input((FEATURES,)), layers.Dense(5, activation="tanh", name="first"), layers.Dense(1, name="last")]
    )
    if seed is not None:
        generator = np.random.default_rng(seed)
        model.set_weights([generator.normal(size=w.shape).astype(np.float32) for w in model.get_weights()])
    model.compile(optimizer=optimizer, loss="mse", **options)
    return model


def fit(model: Any, data: Any, rows: int, epochs: int = 1, callbacks: Any = ()) -> Any:
    """Trains in the order of the data."""
    return model.fit(
        *data, batch_size=rows, epochs=epochs, shuffle=False, verbose=0, callbacks=list(callbacks)
    )  # fmt: skip


def flat(values: Any) -> Any:
    return np.concatenate([np.ravel(array(value)) for value in values])


def assert_equal_on_all_ranks(values: Any) -> None:
    """Every bit of the arrays is the same everywhere."""
    mine = np.frombuffer(b"".join(array(value).tobytes() for value in values), np.uint8)
    everybodys = array(hvd.allgather(mine[None]))
    assert everybodys.shape == (hvd.size(), mine.size)
    assert (everybodys == mine).all(), [array(value) for value in values]


def assert_usable() -> None:
    """The session works: a small allreduce gives the right answer."""
    assert array(hvd.allreduce([1.0], average=False))[0] == hvd.size()
