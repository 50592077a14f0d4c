"""What the JAX rank tests share: arrays that every rank can compute for every rank, and ways to make a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import horovod.jax as hvd
from rank_world import array_of, assert_values, everybodys

TYPES = ["uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
WAYS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "at once": lambda call: call,
    "compiled": jax.jit,
}


def mine(dtype: str = "float32", shape: tuple[int, ...] = (4, 3)) -> Any:
    return jax.numpy.asarray(array_of(hvd.rank(), dtype, shape))


def assert_is(made: Any, expected: Any, dtype: str = "float32") -> None:
    assert isinstance(made, jax.Array)
    assert_values(np.asarray(made), expected, dtype)


def assert_usable() -> None:
    """The session still works, at once and compiled."""
    for way in WAYS.values():
        assert_is(way(lambda x: hvd.allreduce(x, op=hvd.Sum, name="usable"))(mine()), sum(everybodys()))
