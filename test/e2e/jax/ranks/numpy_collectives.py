"""What collectives and their gradients are, computed by one process with numpy, of arrays that it has for all ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import horovod.jax as hvd

LINEAR = ("sum", "average", "allgather", "broadcast", "alltoall", "reducescatter")
_OTHERS = {"min": hvd.Min, "max": hvd.Max, "product": hvd.Product}
KINDS = (*LINEAR, *_OTHERS)


def call_of(kind: str, name: str) -> Callable[[Any], Any]:
    """The collective as it is under test. The broadcast is from the last rank."""
    if kind == "sum":
        return lambda x: hvd.allreduce(x, op=hvd.Sum, name=name)
    if kind == "average":
        return lambda x: hvd.allreduce(x, name=name)
    if kind in _OTHERS:
        return lambda x: hvd.allreduce(x, op=_OTHERS[kind], name=name)
    if kind == "broadcast":
        return lambda x: hvd.broadcast(x, hvd.size() - 1, name=name)
    if kind == "reducescatter":
        return lambda x: hvd.reducescatter(x, op=hvd.Sum, name=name)
    return lambda x: getattr(hvd, kind)(x, name=name)


def _parts(array: Any, rank: int) -> Any:
    """This rank's of equal shares of the rows; the first ranks have one more."""
    return np.array_split(array, hvd.size())[rank]


def result_of(kind: str, arrays: list[Any]) -> Any:
    """What this rank gets."""
    reductions = {"sum": np.sum, "average": np.mean, "min": np.min, "max": np.max, "product": np.prod}
    if kind in reductions:
        return reductions[kind](arrays, axis=0)
    if kind == "broadcast":
        return arrays[-1]
    if kind == "allgather":
        return np.concatenate(arrays)
    if kind == "alltoall":
        return np.concatenate([_parts(array, hvd.rank()) for array in arrays])
    return _parts(np.sum(arrays, axis=0), hvd.rank())


def gradient_of(kind: str, gradients: list[Any]) -> Any:
    """Of what this rank gives, from the gradients of the results of all ranks; as horovod.torch defines it."""
    rank, size = hvd.rank(), hvd.size()
    if kind == "broadcast":
        return np.mean(gradients, axis=0) * (rank == size - 1)
    if kind == "allgather":
        return _parts(np.mean(gradients, axis=0), rank)
    if kind == "reducescatter":
        return size * np.concatenate(gradients)
    return result_of(kind, gradients)  # the same operation


def of_examples(one: Callable[[str, list[Any]], Any], kind: str, arrays: list[Any], axis: int) -> Any:
    """`one` for each example of batches; the examples lie along the first dimension of the result."""
    count = arrays[0].shape[axis]
    return np.stack([one(kind, [array.take(i, axis) for array in arrays]) for i in range(count)])
