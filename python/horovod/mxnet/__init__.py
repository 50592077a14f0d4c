"""Horovod for MXNet: `import horovod.mxnet as hvd`. Collectives are operations of MXNet's engine."""

from __future__ import annotations

from horovod._common import session as _common_session
from horovod._common.session import *  # noqa: F403
from horovod.common.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from horovod.mxnet._optimizer import DistributedOptimizer
from horovod.mxnet._session import shutdown  # noqa: F401  instead of the common one
from horovod.mxnet._trainer import DistributedTrainer
from horovod.mxnet.compression import Compression
from horovod.mxnet.functions import allgather_object, broadcast_object, broadcast_parameters
from horovod.mxnet.mpi_ops import (
    allgather,
    allreduce,
    allreduce_,
    alltoall,
    broadcast,
    broadcast_,
    grouped_allgather,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_reducescatter,
    reducescatter,
)

__all__ = [
    "ProcessSet",
    "global_process_set",
    "add_process_set",
    "remove_process_set",
    # collectives
    "allreduce",
    "allreduce_",
    "grouped_allreduce",
    "grouped_allreduce_",
    "allgather",
    "grouped_allgather",
    "broadcast",
    "broadcast_",
    "reducescatter",
    "grouped_reducescatter",
    "alltoall",
    # training
    "Compression",
    "DistributedOptimizer",
    "DistributedTrainer",
    "broadcast_parameters",
    "broadcast_object",
    "allgather_object",
]
__all__ += _common_session.__all__
