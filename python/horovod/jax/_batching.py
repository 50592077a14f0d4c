"""Collectives under jax.vmap: one for the whole batch, whose result for each example is the collective of the example.

What works element by element takes a batch as it is. Where rows move, the batch stands behind the rows. Adasum depends
on all elements of an array, so each example is an array of its own there, and all go in one call.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Sequence
from typing import Any

from horovod._common.native import core
from horovod.jax._primitive import bind, primitive
from horovod.jax._work import KEEPS_SHAPE, Work

jax: Any = importlib.import_module("jax")  # Any: its types differ between versions
_batching: Any = importlib.import_module("jax.interpreters.batching")

_Axis = int | None  # None: the array is the same for all examples


def _batched(arrays: Sequence[Any], axes: Sequence[_Axis], *, work: Work) -> tuple[list[Any], list[_Axis]]:
    pairs = list(zip(arrays, axes, strict=True))
    examples = next(array.shape[axis] for array, axis in pairs if axis is not None)
    if work.kind == core.OP_ALLREDUCE and work.op == core.REDUCE_ADASUM and examples > 0:
        return _each_alone(arrays, axes, work)
    if work.kind not in KEEPS_SHAPE:
        arrays = [jax.numpy.moveaxis(array, 0, 1) if axis == 0 else array for array, axis in pairs]
        axes = [1 if axis == 0 else axis for axis in axes]
    return bind(work, arrays), [*axes, *([None] if work.gives_rows else [])]


def _each_alone(arrays: Sequence[Any], axes: Sequence[_Axis], work: Work) -> tuple[list[Any], list[_Axis]]:
    examples = [_examples(array, axis) for array, axis in zip(arrays, axes, strict=True)]
    counts = [len(some) for some in examples]
    if work.groups:
        ends = [sum(work.groups[: i + 1]) for i in range(len(work.groups))]
        groups = tuple(sum(counts[end - size : end]) for size, end in zip(work.groups, ends, strict=True))
        single = dataclasses.replace(work, groups=groups)
    else:
        named = zip(work.names, counts, axes, strict=True)
        names = [
            name if axis is None else f"{name}.{i + 1}of{count}" for name, count, axis in named for i in range(count)
        ]
        single = dataclasses.replace(work, names=tuple(names))
    made = iter(bind(single, [one for some in examples for one in some]))
    own = [[next(made) for _ in range(count)] for count in counts]
    joined = [some[0] if axis is None else jax.numpy.stack(some, axis) for some, axis in zip(own, axes, strict=True)]
    return joined, list(axes)


def _examples(array: Any, axis: _Axis) -> list[Any]:
    if axis is None:
        return [array]
    return [jax.lax.index_in_dim(array, i, axis, keepdims=False) for i in range(array.shape[axis])]


_batching.primitive_batchers[primitive] = _batched
