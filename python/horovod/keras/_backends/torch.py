"""Keras 3 on PyTorch: everything goes through horovod.torch. Nothing of TensorFlow is imported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import torch

from horovod import torch as hvd
from horovod.common.process_sets import global_process_set
from horovod.keras._backends import callbacks as _callbacks
from horovod.keras._backends import saving
from horovod.keras._backends.gradients import Groups, Reduce
from horovod.keras._backends.optimizer import Backend, create
from horovod.keras._backends.options import Options, local_layer_variables, make_options, reduction_of
from horovod.keras._backends.passes import LocalPasses
from horovod.torch._session import basics
from horovod.torch.compression import Compression
from horovod.torch.functions import _InPlaceBroadcasts

__all__ = [
    "BroadcastGlobalVariables",
    "Compression",
    "LearningRateSchedule",
    "LearningRateWarmup",
    "MetricAverage",
    "allgather",
    "allreduce",
    "basics",
    "broadcast",
    "broadcast_global_variables",
    "create_distributed_optimizer",
    "load_model",
    "local_layer_variables",
    "make_options",
    "reducescatter",
]


class _Reducer:
    """Reduces the gradients of one optimizer, in place where they are contiguous."""

    def __init__(self, name: str, options: Options) -> None:
        self._name = name
        self._compression = options.compression or Compression.none
        prescale, postscale = options.scales
        self._common: dict[str, Any] = {
            "op": options.op,
            "prescale_factor": prescale,
            "postscale_factor": postscale,
            "process_set": options.process_set,
        }

    def __call__(self, tensors: list[Any], places: list[int], groups: Groups) -> list[Any]:
        with torch.no_grad():
            sent = [self._compression.compress(tensor.detach().contiguous()) for tensor in tensors]
            arrays = [tensor for tensor, _ in sent]
            self._communicate(arrays, places, groups)
            return [self._compression.decompress(tensor, context) for tensor, context in sent]

    def _communicate(self, tensors: list[Any], places: list[int], groups: Groups) -> None:
        # By position: what variables are called depends on how many models a rank has built before.
        if groups:
            handles = [
                hvd.grouped_allreduce_async_(
                    [tensors[i] for i in group], name=f"{self._name}.group_{number}", **self._common
                )
                for number, group in enumerate(groups)
            ]
        else:
            handles = [
                hvd.allreduce_async_(tensor, name=f"{self._name}.grad_{place}", **self._common)
                for tensor, place in zip(tensors, places, strict=True)
            ]
        _wait_for(handles)


def _wait_for(handles: Sequence[int]) -> None:
    """Waits for all, then raises the first error: nothing may write to a tensor after that."""
    error: Exception | None = None
    for handle in handles:
        try:
            hvd.synchronize(handle)
        except Exception as raised:
            error = error or raised
    if error is not None:
        raise error


class _Torch(Backend):
    def reducer(self, name: str, options: Options) -> Reduce:
        return _Reducer(name, options)

    def passes(self, options: Options) -> LocalPasses | None:
        if options.backward_passes_per_step == 1:
            return None
        return LocalPasses(options.backward_passes_per_step, options.average_aggregated_gradients)


_BACKEND = _Torch()


def create_distributed_optimizer(optimizer: Any, options: Options) -> Any:
    return create(optimizer, options, _BACKEND)


def load_model(keras: Any, filepath: Any, custom_optimizers: Any, custom_objects: Any, options: Options) -> Any:
    return saving.load_model(keras, filepath, custom_optimizers, custom_objects, options, _BACKEND)


def _tensor(value: Any) -> torch.Tensor:
    tensor: torch.Tensor = keras.ops.convert_to_tensor(value)
    return tensor.contiguous()


def allreduce(
    value: Any,
    name: str | None,
    average: bool | None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: Any = Compression.none,
) -> torch.Tensor:
    return hvd.allreduce(
        _tensor(value),
        name=name,
        op=reduction_of(op, average),
        compression=compression,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
    )


def allgather(value: Any, name: str | None = None) -> torch.Tensor:
    """The rows of all ranks, in rank order."""
    return hvd.allgather(_tensor(value), name)


def broadcast(value: Any, root_rank: int, name: str | None = None) -> torch.Tensor:
    """The value of rank `root_rank`."""
    return hvd.broadcast(_tensor(value), root_rank, name)


def reducescatter(value: Any, name: str | None = None, op: int = hvd.Average) -> torch.Tensor:
    """This rank's share of the rows of the reduced value."""
    return hvd.reducescatter(_tensor(value), name=name, op=op)


def broadcast_global_variables(root_rank: int) -> None:
    """RuntimeError: variables are not global on this backend."""
    _callbacks.refuse_global_variables(root_rank)


class _Collectives(_callbacks.Collectives):
    def broadcast_variables(self, variables: Sequence[Any], root_rank: int) -> None:
        batch = _InPlaceBroadcasts(root_rank, global_process_set)
        for position, variable in enumerate(variables):
            batch.add(variable.value, f"HorovodBroadcast_{position}")
        batch.finish()

    def average(self, values: Sequence[Any], names: Sequence[str]) -> list[Any]:
        tensors = [torch.as_tensor(value, dtype=torch.float64).clone() for value in values]
        _wait_for([hvd.allreduce_async_(one, name=name) for one, name in zip(tensors, names, strict=True)])
        return [tensor.numpy() for tensor in tensors]

    def compiles_steps(self, model: Any) -> bool:
        return bool(model.jit_compile) and not model.run_eagerly


BroadcastGlobalVariables, MetricAverage, LearningRateSchedule, LearningRateWarmup = _callbacks.bound_to(_Collectives())
