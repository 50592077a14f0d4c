"""What the MXNet rank tests share: arrays that every rank can compute for every rank."""

from __future__ import annotations

from typing import Any

import mxnet as mx
import numpy as np

import horovod.mxnet as hvd

TYPES = ["uint8", "int8", "int32", "int64", "float16", "float32", "float64"]


def array_of(rank: int, dtype: str = "float32", shape: tuple[int, ...] = (4, 3)) -> Any:
    """Small whole numbers, which every type holds, sums of three ranks too; others on each rank."""
    return (np.arange(np.prod(shape)).reshape(shape) % 7 + 3 * rank + 1).astype(dtype)


def mine(dtype: str = "float32", shape: tuple[int, ...] = (4, 3)) -> Any:
    return mx.nd.array(array_of(hvd.rank(), dtype, shape), dtype=dtype)


def everybodys(dtype: str = "float32", shape: tuple[int, ...] = (4, 3)) -> list[Any]:
    """In double precision."""
    return [array_of(rank, dtype, shape).astype(np.float64) for rank in range(hvd.size())]


def assert_is(made: Any, expected: Any, dtype: str = "float32") -> None:
    assert isinstance(made, mx.nd.NDArray)
    assert np.dtype(made.dtype) == np.dtype(dtype)
    assert made.shape == np.shape(expected)
    np.testing.assert_array_equal(made.asnumpy().astype(np.float64), expected)


def meet() -> None:
    """Returns when all ranks have called it: MXNet's module has no barrier."""
    hvd.allgather_object(None, name="meet")


def assert_usable() -> None:
    """The session still works."""
    assert_is(hvd.allreduce(mine(), op=hvd.Sum, name="usable"), sum(everybodys()))
