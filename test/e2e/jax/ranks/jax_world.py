"""What the JAX rank tests share: arrays that every rank can compute for every rank, and ways to make a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import horovod.jax as hvd

TYPES = ["uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
WAYS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "at once": lambda call: call,
    "compiled": jax.jit,
}


def array_of(rank: int, dtype: str = "float32", shape: tuple[int, ...] = (4, 3)) -> Any:
    """Small whole numbers, which every type holds, sums of three ranks too; others on each rank."""
    return (np.arange(np.prod(shape)).reshape(shape) % 7 + 3 * rank + 1).astype(jax.numpy.dtype(dtype))


def mine(dtype: str = "float32", shape: tuple[int, ...] = (4, 3)) -> Any:
    return jax.numpy.asarray(array_of(hvd.rank(), dtype, shape))


def everybodys(dtype: str = "float32", shape: tuple[int, ...] = (4, 3)) -> list[Any]:
    """In double precision."""
    return [array_of(rank, dtype, shape).astype(np.float64) for rank in range(hvd.size())]


def assert_is(made: Any, expected: Any, dtype: str = "float32") -> None:
    assert isinstance(made, jax.Array)
    assert made.dtype == jax.numpy.dtype(dtype)
    assert made.shape == np.shape(expected)
    np.testing.assert_array_equal(np.asarray(made).astype(np.float64), expected)


def assert_usable() -> None:
    """The session still works, at once and compiled."""
    for way in WAYS.values():
        assert_is(way(lambda x: hvd.allreduce(x, op=hvd.Sum, name="usable"))(mine()), sum(everybodys()))
