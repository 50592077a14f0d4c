"""Keras 3 on PyTorch, on top of horovod.torch. Imports nothing of TensorFlow."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import torch

from horovod import torch as hvd
from horovod._common.gradient_options import Options, Plan
from horovod._common.handles import wait_for_all
from horovod._common.local_variables import LocalVariables
from horovod._common.session import follow_sessions
from horovod._keras.backend import Reduce
from horovod._keras.optimizer import Keras3
from horovod._keras.reduction import Keras3Backend, Reduction
from horovod.torch._broadcast import broadcast_each_
from horovod.torch.compression import Compression

__all__ = ["BACKEND"]


class _Reduction(Reduction):
    """Reduces contiguous gradients in place, copies of the others."""

    def communicate(self, tensors: list[Any], names: list[str], plan: Plan) -> list[Any]:
        options, compression = self.options, self.options.compression
        prescale, postscale = options.factors
        common: dict[str, Any] = {
            "op": options.op,
            "prescale_factor": prescale,
            "postscale_factor": postscale,
            "process_set": options.process_set,
        }
        with torch.no_grad():
            compressed = [compression.compress(tensor.detach().contiguous()) for tensor in tensors]
            sent = [tensor for tensor, _ in compressed]
            if plan:
                handles = (
                    hvd.grouped_allreduce_async_([sent[i] for i in group], name=f"{self.name}.group_{number}", **common)
                    for number, group in enumerate(plan)
                )
            else:
                handles = (
                    hvd.allreduce_async_(one, name=name, **common) for one, name in zip(sent, names, strict=True)
                )
            wait_for_all(functools.partial(hvd.synchronize, handle) for handle in handles)
            return [compression.decompress(tensor, context) for tensor, context in compressed]


class _LocalPasses:
    """Adds up the gradients of one optimizer before they are reduced. `counter`: steps since the last reduction."""

    def __init__(self, options: Options, reduce: Reduce) -> None:
        self.backward_passes_per_step = options.backward_passes_per_step
        self.average_aggregated_gradients = options.average_aggregated_gradients
        self.counter = 0
        self._sums: list[Any] = []
        self._reduce = reduce
        self._local = LocalVariables(options.process_set, options.scale_local_gradients)
        self.register_local_var = self._local.register
        follow_sessions(self)

    def on_session_start(self) -> None:
        """Forgets the passes of a session that ended before they were reduced: ranks begin to count together."""
        self.counter, self._sums = 0, []

    def compute_gradients(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """The reduced sums on every k-th call, this rank's sums so far on the others. None where no step had any."""
        sums = self._sums or [None] * len(grads)
        # Copies: the next gradient may be written into the same memory.
        self._sums = [
            total if grad is None else grad + 0 if total is None else total + grad
            for total, grad in zip(sums, grads, strict=True)
        ]
        self.counter += 1
        if self.counter < self.backward_passes_per_step:
            return self._sums
        sums, self._sums, self.counter = self._sums, [], 0  # new sums: an infinite gradient must not survive
        reduced = self._local.reduce(self._reduce, sums, variables)
        if not self.average_aggregated_gradients:
            return reduced
        return [None if grad is None else grad / self.backward_passes_per_step for grad in reduced]

    def apply_gradients(self, apply: Callable[[], Any], optimizer: Any, pairs: Any) -> Any:
        """Applies on the calls that reduced, and only counts the step on the others."""
        del pairs
        return apply() if self.counter == 0 else optimizer.iterations.assign_add(1)


def _tensor(value: Any) -> torch.Tensor:
    tensor: torch.Tensor = keras.ops.convert_to_tensor(value)
    return tensor.contiguous()


class _Torch(Keras3Backend):
    Compression = Compression
    keras3 = Keras3

    def reducer(self, name: str, options: Options) -> Reduce:
        return _Reduction(name, options)

    def passes(self, options: Options, reduce: Reduce, name: str) -> Any:
        return _LocalPasses(options, reduce)

    def broadcast_variables(self, variables: Sequence[Any], root_rank: int, device: str) -> None:
        named = [(f"HorovodBroadcast_{position}", variable.value) for position, variable in enumerate(variables)]
        broadcast_each_(named, root_rank)

    def allreduce(
        self, value: Any, name: str | None, op: int, prescale_factor: float, postscale_factor: float, compression: Any
    ) -> torch.Tensor:
        return hvd.allreduce(
            _tensor(value),
            name=name,
            op=op,
            compression=compression,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
        )

    def allgather(self, value: Any, name: str | None = None) -> torch.Tensor:
        return hvd.allgather(_tensor(value), name)

    def broadcast(self, value: Any, root_rank: int, name: str | None = None) -> torch.Tensor:
        return hvd.broadcast(_tensor(value), root_rank, name)

    def reducescatter(self, value: Any, name: str | None = None, op: int = hvd.Average) -> torch.Tensor:
        return hvd.reducescatter(_tensor(value), name=name, op=op)


BACKEND = _Torch()
