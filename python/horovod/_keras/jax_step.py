"""Reduction of the gradients of a JAX step, compiled or not.

A compiled step calls back to the host, once, with all gradients: jax's io_callback keeps the calls of successive steps
in order, also inside conditions. XLA calls on any thread; waiting releases the GIL.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np

from horovod._common.arrays import ArrayCollectives
from horovod._common.calls import set_id
from horovod._common.gradient_options import Plan
from horovod._keras.options import Options
from horovod._keras.reduction import Reduction

__all__ = ["Compression", "HostFailure", "HostReduction"]

jax: Any = importlib.import_module("jax")
_io_callback: Any = importlib.import_module("jax.experimental").io_callback


class HostFailure:
    """The exception that ended the last callback. XLA raises another one instead, with its text."""

    def __init__(self) -> None:
        self._last: BaseException | None = None

    def remember(self, failure: BaseException) -> None:
        self._last = failure

    def take(self) -> BaseException | None:
        """The failure, once."""
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
            shapes = tuple(jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays)
            call = functools.partial(self._from_step, names, plan)
            reduced = _io_callback(call, shapes, *arrays, ordered=True)
        else:
            reduced = [jax.numpy.asarray(array) for array in self._on_host(names, plan, *arrays)]
        return [compression.decompress(one, context) for one, (_, context) in zip(reduced, sent, strict=True)]

    def _from_step(self, names: list[str], plan: Plan, *arrays: Any) -> tuple[Any, ...]:
        try:
            return tuple(self._on_host(names, plan, *arrays))
        except BaseException as failure:
            self._failure.remember(failure)
            raise

    def _on_host(self, names: list[str], plan: Plan, *arrays: Any) -> list[Any]:
        # Copies: XLA's buffers are valid during the call only, and operations go on after an interrupted wait.
        own = [np.array(array, order="C") for array in arrays]
        common = (self.options.op, *self.options.factors, set_id(self.options.process_set))
        if plan:
            groups = {f"{self.name}.group_{number}": [own[i] for i in group] for number, group in enumerate(plan)}
            self._collectives.grouped_allreduce_(groups, *common)
        else:
            self._collectives.allreduce_(own, names, *common)
        return own


class _NoneCompressor:
    """Sends arrays unchanged."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor if ctx is None else tensor.astype(ctx)


class _Fp16Compressor(_NoneCompressor):
    """Sends floating-point arrays as float16, those of numpy and of JAX, also while a function is compiled."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return (tensor.astype("float16"), tensor.dtype) if "float" in tensor.dtype.name else (tensor, None)


class Compression:
    """The choices for the `compression` argument of allreduce() and DistributedOptimizer(): none, fp16.

    Each has compress(tensor), which returns the array to send and a context, and decompress(tensor, context).
    """

    none = _NoneCompressor
    fp16 = _Fp16Compressor
