"""What the MXNet rank tests share: arrays that every rank can compute for every rank."""

from __future__ import annotations

from typing import Any

import mxnet as mx

import horovod.mxnet as hvd
from rank_world import array_of, assert_values, everybodys

TYPES = ["uint8", "int8", "int32", "int64", "float16", "float32", "float64"]


def mine(dtype: str = "float32", shape: tuple[int, ...] = (4, 3)) -> Any:
    return mx.nd.array(array_of(hvd.rank(), dtype, shape), dtype=dtype)


def assert_is(made: Any, expected: Any, dtype: str = "float32") -> None:
    assert isinstance(made, mx.nd.NDArray)
    assert_values(made.asnumpy(), expected, dtype)


def meet() -> None:
    """Returns when all ranks have called it: MXNet's module has no barrier."""
    hvd.allgather_object(None, name="meet")


def assert_usable() -> None:
    """The session still works."""
    assert_is(hvd.allreduce(mine(), op=hvd.Sum, name="usable"), sum(everybodys()))
