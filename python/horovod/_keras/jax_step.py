"""Reduction of the gradients of a JAX step, compiled or not.

A compiled step makes one call with all gradients: a custom call of XLA (horovod/jax/_call.py), or where that cannot
be, a callback to the host: jax's io_callback keeps the calls of successive steps in order, also inside conditions. XLA
calls back on any thread; waiting releases the GIL.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np

from horovod._common.arrays import ArrayCollectives
from horovod._common.calls import set_id
from horovod._common.gradient_options import Options, Plan
from horovod._common.native import core
from horovod._keras.reduction import Reduction
from horovod.jax import _call
from horovod.jax._primitive import run
from horovod.jax._work import Work

__all__ = ["HostFailure", "HostReduction"]

jax: Any = importlib.import_module("jax")
_io_callback: Any = importlib.import_module("jax.experimental").io_callback


class HostFailure:
    """The exception that ended the last call. XLA raises another one instead, with its text."""

    def __init__(self) -> None:
        self._last: BaseException | None = None

    def remember(self, failure: BaseException) -> None:
        self._last = failure

    def take(self) -> BaseException | None:
        """The failure, once; that of a custom call, too."""
        try:
            core.raise_call_failure()
        except BaseException as raised:
            _call.forget_failed()
            return raised
        failure, self._last = self._last, None
        return failure


class HostReduction(Reduction):
    """Reduces the gradients of one optimizer."""

    def __init__(self, name: str, options: Options, collectives: ArrayCollectives, failure: HostFailure) -> None:
        super().__init__(name, options)
        self._collectives = collectives
        self._failure = failure

    def communicate(self, tensors: list[Any], names: list[str], plan: Plan) -> list[Any]:
        compression = self.options.compression
        sent = [compression.compress(tensor) for tensor in tensors]
        arrays = [array for array, _ in sent]
        if any(isinstance(array, jax.core.Tracer) for array in arrays):
            reduced = self._in_step(arrays, names, plan)
        else:
            reduced = [jax.numpy.asarray(array) for array in self._on_host(names, plan, *arrays)]
        return [compression.decompress(one, context) for one, (_, context) in zip(reduced, sent, strict=True)]

    def _in_step(self, arrays: list[Any], names: list[str], plan: Plan) -> list[Any]:
        """The arrays of a function that is being compiled, reduced whenever it runs."""
        if _call.problem() is None:
            return self._by_custom_call(arrays, names, plan)
        shapes = tuple(jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays)
        call = functools.partial(self._from_step, names, plan)
        return list(_io_callback(call, shapes, *arrays, ordered=True))

    def _by_custom_call(self, arrays: list[Any], names: list[str], plan: Plan) -> list[Any]:
        order = [position for group in plan for position in group] or range(len(arrays))
        named = [f"{self.name}.group_{number}" for number in range(len(plan))] or names
        op, prescale, postscale, _ = self._reduction()
        sizes = tuple(map(len, plan))
        work = Work(core.OP_ALLREDUCE, tuple(named), sizes, op, prescale, postscale, self.options.process_set)
        reduced = run(work, [arrays[i] for i in order])
        return [one for _, one in sorted(zip(order, reduced, strict=True), key=lambda pair: pair[0])]

    def _reduction(self) -> tuple[int, float, float, int]:
        return (self.options.op, *self.options.factors, set_id(self.options.process_set))

    def _from_step(self, names: list[str], plan: Plan, *arrays: Any) -> tuple[Any, ...]:
        try:
            return tuple(self._on_host(names, plan, *arrays))
        except BaseException as failure:
            self._failure.remember(failure)
            raise

    def _on_host(self, names: list[str], plan: Plan, *arrays: Any) -> list[Any]:
        # Copies: XLA's buffers are valid during the call only, and operations go on after an interrupted wait.
        own = [np.array(array, order="C") for array in arrays]
        if plan:
            groups = {f"{self.name}.group_{number}": [own[i] for i in group] for number, group in enumerate(plan)}
            self._collectives.grouped_allreduce_(groups, *self._reduction())
        else:
            self._collectives.allreduce_(own, names, *self._reduction())
        return own
