"""Reducing the gradients of a JAX step, compiled or not.

A compiled step calls back to the host, once, with all gradients: jax's io_callback keeps the calls of successive steps
in order, also inside conditions. Whatever thread of XLA makes the call, waiting releases the GIL.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np

from horovod._common.arrays import ArrayCollectives
from horovod.keras._backends.gradients import Groups
from horovod.keras._backends.jax_compression import Compression
from horovod.keras._backends.options import Options

__all__ = ["HostFailure", "HostReducer"]

jax: Any = importlib.import_module("jax")
_io_callback: Any = importlib.import_module("jax.experimental").io_callback


class HostFailure:
    """The exception that ended the last callback: XLA raises one of its own in its place, with the text of this one."""

    def __init__(self) -> None:
        self._last: BaseException | None = None

    def remember(self, failure: BaseException) -> None:
        self._last = failure

    def take(self) -> BaseException | None:
        """The failure, once."""
        failure, self._last = self._last, None
        return failure


class HostReducer:
    """Reduces the gradients of one optimizer."""

    def __init__(self, name: str, options: Options, collectives: ArrayCollectives, failure: HostFailure) -> None:
        self._name = name
        self._options = options
        self._compression = options.compression or Compression.none
        self._collectives = collectives
        self._failure = failure

    def __call__(self, tensors: list[Any], places: list[int], groups: Groups) -> list[Any]:
        sent = [self._compression.compress(tensor) for tensor in tensors]
        arrays = [array for array, _ in sent]
        if any(isinstance(array, jax.core.Tracer) for array in arrays):
            shapes = tuple(jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays)
            call = functools.partial(self._from_step, tuple(places), groups)
            reduced = _io_callback(call, shapes, *arrays, ordered=True)
        else:
            reduced = [jax.numpy.asarray(array) for array in self._on_host(places, groups, *arrays)]
        return [self._compression.decompress(one, context) for one, (_, context) in zip(reduced, sent, strict=True)]

    def _from_step(self, places: tuple[int, ...], groups: Groups, *arrays: Any) -> tuple[Any, ...]:
        try:
            return tuple(self._on_host(places, groups, *arrays))
        except BaseException as failure:
            self._failure.remember(failure)
            raise

    def _on_host(self, places: Any, groups: Groups, *arrays: Any) -> list[Any]:
        # Copies: what XLA lends ends with the call, and an interrupted wait leaves operations behind that go on.
        own = [np.array(array, order="C") for array in arrays]
        members = self._options.process_set.process_set_id
        if members is None:
            raise ValueError(f"{self._options.process_set} is not registered: pass it to init() first")
        common = (self._options.op, *self._options.scales, members)
        # By position: what variables are called depends on how many models a rank has built before.
        if not groups:
            self._collectives.allreduce_(own, [f"{self._name}.grad_{place}" for place in places], *common)
        for number, group in enumerate(groups):
            self._collectives.grouped_allreduce_([own[i] for i in group], f"{self._name}.group_{number}", *common)
        return own
