"""What the TensorFlow rank tests share: inputs that every rank can compute for every rank, and the three modes."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd

REDUCIBLE = (tf.uint8, tf.int8, tf.int32, tf.int64, tf.float16, tf.bfloat16, tf.float32, tf.float64)
MOVABLE = (*REDUCIBLE, tf.uint16, tf.int16, tf.bool)
SCATTERABLE = (tf.int32, tf.int64, tf.float16, tf.bfloat16, tf.float32, tf.float64)
KERAS_3 = hasattr(tf.keras, "ops")
SHAPES = ((17,), (5, 17, 3), (), (0, 3))


def array(value: Any) -> Any:
    """A tensor's value; scalars too become arrays."""
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)


def total(values: list[Any]) -> Any:
    """The sum, in the type of the values."""
    arrays = [array(value) for value in values]
    return sum(arrays[1:], arrays[0]).astype(arrays[0].dtype)


def of_rank(rank: int, shape: tuple[int, ...], dtype: tf.DType, case: str = "") -> Any:
    """The input of `rank`: small whole numbers, so that sums of three ranks are exact in every type."""
    seed = zlib.crc32(f"{case} {shape} {rank}".encode())
    return tf.cast(np.random.default_rng(seed).integers(0, 40, shape), dtype)


def of_all(shape: tuple[int, ...], dtype: tf.DType, case: str = "") -> list[Any]:
    return [of_rank(rank, shape, dtype, case) for rank in range(hvd.size())]


def mine(shape: tuple[int, ...], dtype: tf.DType, case: str = "") -> Any:
    return of_rank(hvd.rank(), shape, dtype, case)


def same(actual: Any, expected: Any) -> None:
    """Equal in type, shape and every bit."""
    actual, expected = array(actual), array(expected)
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    assert (actual == expected).all(), f"{actual} != {expected}"


def eagerly(run: Callable[[], Any]) -> Any:
    return tf.nest.map_structure(array, run())


def in_function(run: Callable[[], Any]) -> Any:
    return tf.nest.map_structure(array, tf.function(lambda: run())())  # noqa: PLW0108  defaults become tensors


def in_graph(run: Callable[[], Any]) -> Any:
    """TF1: a graph and a session. Inputs are made inside."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        return session.run(run())


MODES = (eagerly, in_function, in_graph)


def assert_usable() -> None:
    """The session works: a small allreduce gives the right answer."""
    assert hvd.allreduce(tf.constant([1.0]), op=hvd.Sum).numpy()[0] == hvd.size()


def node_names(run: Callable[[], Any]) -> list[str]:
    """The names of Horovod's nodes in the graph of a function."""
    graph = tf.function(run).get_concrete_function().graph
    return [op.name for op in graph.get_operations() if op.type.startswith("Horovod")]


def slices(rows: int, start: int = 0) -> tf.IndexedSlices:
    return tf.IndexedSlices(tf.ones([rows, 2]), tf.range(start, start + rows), dense_shape=tf.constant([10, 2]))


def compiled(run: Callable[..., Any]) -> Callable[..., Any]:
    return tf.function(run, jit_compile=True)


def agree(run: Callable[..., Any], *arguments: Any) -> Any:
    """Compiled, the function gives what it gives otherwise, bit by bit."""
    without = tf.nest.map_structure(array, tf.function(run)(*arguments))
    with_xla = tf.nest.map_structure(array, compiled(run)(*arguments))
    tf.nest.map_structure(same, with_xla, without)
    return with_xla
