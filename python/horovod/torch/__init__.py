"""Horovod for PyTorch: `import horovod.torch as hvd`.

Without the native core the package still imports, says what is missing, and lacks the functions.
"""

from __future__ import annotations

import sys
import warnings

import torch

from horovod.common.exceptions import HorovodInternalError
from horovod.common.util import check_installed_version

try:
    from horovod._common import native as _native  # noqa: F401
except ImportError as _error:
    print(f"horovod.torch: {_error}", file=sys.stderr)
    check_installed_version("pytorch", torch.__version__, _error)
    warnings.warn(f"horovod.torch was imported without its native core and has no functions: {_error}", stacklevel=2)
else:
    check_installed_version("pytorch", torch.__version__)
    from horovod.common.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
    from horovod.torch import elastic
    from horovod.torch._compile import keep_whole as _keep_whole
    from horovod.torch.compression import Compression
    from horovod.torch.functions import (
        allgather_object,
        broadcast_object,
        broadcast_optimizer_state,
        broadcast_parameters,
        join_and_broadcast,
    )
    from horovod.torch.mpi_ops import (
        Adasum,
        Average,
        Max,
        Min,
        Product,
        Sum,
        allgather,
        allgather_async,
        allreduce,
        allreduce_,
        allreduce_async,
        allreduce_async_,
        alltoall,
        alltoall_async,
        barrier,
        broadcast,
        broadcast_,
        broadcast_async,
        broadcast_async_,
        ccl_built,
        cross_rank,
        cross_size,
        cuda_built,
        ddl_built,
        gloo_built,
        gloo_enabled,
        grouped_allgather,
        grouped_allgather_async,
        grouped_allreduce,
        grouped_allreduce_,
        grouped_allreduce_async,
        grouped_allreduce_async_,
        grouped_reducescatter,
        grouped_reducescatter_async,
        init,
        is_homogeneous,
        is_initialized,
        join,
        local_rank,
        local_size,
        mpi_built,
        mpi_enabled,
        mpi_threads_supported,
        nccl_built,
        poll,
        rank,
        reducescatter,
        reducescatter_async,
        rocm_built,
        shutdown,
        size,
        sparse_allreduce_async,
        start_timeline,
        stop_timeline,
        synchronize,
    )
    from horovod.torch.optimizer import DistributedOptimizer
    from horovod.torch.sync_batch_norm import SyncBatchNorm

    _keep_whole()

__all__ = [
    "HorovodInternalError",
    # the session
    "init",
    "shutdown",
    "is_initialized",
    "rank",
    "size",
    "local_rank",
    "local_size",
    "cross_rank",
    "cross_size",
    "is_homogeneous",
    "mpi_threads_supported",
    "mpi_enabled",
    "mpi_built",
    "gloo_enabled",
    "gloo_built",
    "nccl_built",
    "ddl_built",
    "ccl_built",
    "cuda_built",
    "rocm_built",
    "start_timeline",
    "stop_timeline",
    "ProcessSet",
    "global_process_set",
    "add_process_set",
    "remove_process_set",
    # collectives
    "Average",
    "Sum",
    "Adasum",
    "Min",
    "Max",
    "Product",
    "allreduce",
    "allreduce_async",
    "allreduce_",
    "allreduce_async_",
    "grouped_allreduce",
    "grouped_allreduce_async",
    "grouped_allreduce_",
    "grouped_allreduce_async_",
    "sparse_allreduce_async",
    "allgather",
    "allgather_async",
    "grouped_allgather",
    "grouped_allgather_async",
    "broadcast",
    "broadcast_async",
    "broadcast_",
    "broadcast_async_",
    "alltoall",
    "alltoall_async",
    "reducescatter",
    "reducescatter_async",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "join",
    "barrier",
    "poll",
    "synchronize",
    # training
    "Compression",
    "DistributedOptimizer",
    "SyncBatchNorm",
    "allgather_object",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "join_and_broadcast",
    "elastic",
]
