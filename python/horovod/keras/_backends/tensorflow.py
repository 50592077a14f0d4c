"""Keras on TensorFlow: Keras 2, and Keras 3 with its backend `tensorflow`."""

from __future__ import annotations

from horovod._keras import create_distributed_optimizer, make_options
from horovod._keras.callbacks import BroadcastGlobalVariables, LearningRateSchedule, LearningRateWarmup, MetricAverage
from horovod._keras.value_functions import (
    allgather,
    allreduce,
    broadcast,
    broadcast_global_variables,
    load_model,
    reducescatter,
)
from horovod.tensorflow._local import local_layer_variables
from horovod.tensorflow._session import basics
from horovod.tensorflow.compression import Compression

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
