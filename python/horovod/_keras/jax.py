"""Keras 3 on JAX. Collectives run on the host, also those of a compiled step: see docs/design/keras.md."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from horovod._common.arrays import ArrayCollectives
from horovod._common.gradient_options import Options
from horovod._common.native import core
from horovod._common.session_watch import watch_interrupts
from horovod._keras.backend import Reduce
from horovod._keras.jax_step import HostFailure, HostReduction
from horovod._keras.optimizer import Keras3
from horovod._keras.reduction import Keras3Backend
from horovod.jax.compression import Compression

__all__ = ["BACKEND"]

jax: Any = importlib.import_module("jax")  # Any: its types differ between versions

watch_interrupts()
_collectives = ArrayCollectives("jax")


def _array(value: Any, caller: str) -> Any:
    """A contiguous copy of the value. RuntimeError while a function is compiled, which has no values yet."""
    value = getattr(value, "value", value)  # of a keras.Variable
    if isinstance(value, jax.core.Tracer):
        raise RuntimeError(
            f"hvd.{caller}() was called inside a compiled function; call it between steps. Gradients of a compiled "
            "step are reduced by hvd.DistributedOptimizer"
        )
    array = np.array(value, order="C")
    if array.dtype == object:
        raise ValueError(f"hvd.{caller}(): expected numbers, got {type(value).__name__}")
    return array


class _Jax(Keras3Backend):
    Compression = Compression
    keras3 = Keras3

    def __init__(self) -> None:
        self._failure = HostFailure()

    def reducer(self, name: str, options: Options) -> Reduce:
        return HostReduction(name, options, _collectives, self._failure)

    def take_failure(self) -> BaseException | None:
        return self._failure.take()

    def passes(self, options: Options, reduce: Reduce, name: str) -> Any:
        passes = options.backward_passes_per_step
        raise ValueError(
            f"backward_passes_per_step={passes} is not supported on Keras' JAX backend, whose steps are compiled; give "
            f"the optimizer itself gradient_accumulation_steps={passes}, which averages over the steps"
        )

    def broadcast_variables(self, variables: Sequence[Any], root_rank: int, device: str) -> None:
        arrays = [np.array(variable.value, order="C") for variable in variables]
        _collectives.broadcast_(arrays, [f"HorovodBroadcast_{i}" for i in range(len(arrays))], root_rank)
        for variable, array in zip(variables, arrays, strict=True):
            variable.assign(array)

    def allreduce(
        self, value: Any, name: str | None, op: int, prescale_factor: float, postscale_factor: float, compression: Any
    ) -> Any:
        compressed, context = compression.compress(_array(value, "allreduce"))
        _collectives.allreduce_([compressed], [name], op, prescale_factor, postscale_factor)
        return jax.numpy.asarray(compression.decompress(compressed, context))

    def allgather(self, value: Any, name: str | None = None) -> Any:
        return jax.numpy.asarray(_collectives.allgather(_array(value, "allgather"), name))

    def broadcast(self, value: Any, root_rank: int, name: str | None = None) -> Any:
        array = _array(value, "broadcast")
        _collectives.broadcast_([array], [name], root_rank)
        return jax.numpy.asarray(array)

    def reducescatter(self, value: Any, name: str | None = None, op: int = core.REDUCE_AVERAGE) -> Any:
        array = _array(value, "reducescatter")
        share = _collectives.reducescatter(array, name, op)
        if array.dtype.name == "bfloat16":
            return jax.dlpack.from_dlpack(share)  # numpy lacks the type
        return jax.numpy.asarray(np.from_dlpack(share))


BACKEND = _Jax()
