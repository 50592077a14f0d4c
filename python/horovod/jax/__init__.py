"""Horovod for JAX: `import horovod.jax as hvd`. Works on arrays, and inside functions that JAX compiles."""

from __future__ import annotations

from horovod._common import session as _common_session
from horovod._common.session import *  # noqa: F403
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from horovod.jax import elastic
from horovod.jax._collectives import (
    allgather,
    allreduce,
    alltoall,
    barrier,
    broadcast,
    grouped_allgather,
    grouped_allreduce,
    grouped_reducescatter,
    join,
    reducescatter,
)
from horovod.jax._optimizer import DistributedOptimizer, allreduce_gradients
from horovod.jax._session import raise_failure, shutdown  # noqa: F401  instead of the common one
from horovod.jax.compression import Compression
from horovod.jax.functions import allgather_object, broadcast_object, broadcast_parameters

__all__ = [
    "HorovodInternalError",
    "ProcessSet",
    "global_process_set",
    "add_process_set",
    "remove_process_set",
    # collectives
    "allreduce",
    "grouped_allreduce",
    "allgather",
    "grouped_allgather",
    "broadcast",
    "reducescatter",
    "grouped_reducescatter",
    "alltoall",
    "barrier",
    "join",
    "raise_failure",
    # training
    "Compression",
    "DistributedOptimizer",
    "allreduce_gradients",
    "broadcast_parameters",
    "broadcast_object",
    "allgather_object",
    "elastic",
]
__all__ += _common_session.__all__
