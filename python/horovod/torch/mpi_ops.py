"""The public functions on torch tensors and of the session, gathered under their traditional module name."""

from __future__ import annotations

from typing import Any

from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._allgather import (
    allgather,
    allgather_async,
    grouped_allgather,
    grouped_allgather_async,
    sparse_allreduce_async,
)
from horovod.torch._allreduce import allreduce, allreduce_, allreduce_async, allreduce_async_
from horovod.torch._alltoall import alltoall, alltoall_async
from horovod.torch._broadcast import barrier, broadcast, broadcast_, broadcast_async, broadcast_async_
from horovod.torch._grouped_allreduce import (
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
)
from horovod.torch._join import join
from horovod.torch._reducescatter import (
    grouped_reducescatter,
    grouped_reducescatter_async,
    reducescatter,
    reducescatter_async,
)
from horovod.torch._session import basics as _basics
from horovod.torch._session import handle_average_backwards_compatibility
from horovod.torch._session import handles as _handles

__all__ = [
    "HorovodInternalError",
    "ProcessSet",
    "global_process_set",
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
    "handle_average_backwards_compatibility",
    "Average",
    "Sum",
    "Adasum",
    "Min",
    "Max",
    "Product",
]

_handle_map = _handles.pending

init = _basics.init
shutdown = _basics.shutdown
is_initialized = _basics.is_initialized
rank = _basics.rank
size = _basics.size
local_rank = _basics.local_rank
local_size = _basics.local_size
cross_rank = _basics.cross_rank
cross_size = _basics.cross_size
is_homogeneous = _basics.is_homogeneous
mpi_threads_supported = _basics.mpi_threads_supported
mpi_enabled = _basics.mpi_enabled
mpi_built = _basics.mpi_built
gloo_enabled = _basics.gloo_enabled
gloo_built = _basics.gloo_built
nccl_built = _basics.nccl_built
ddl_built = _basics.ddl_built
ccl_built = _basics.ccl_built
cuda_built = _basics.cuda_built
rocm_built = _basics.rocm_built
start_timeline = _basics.start_timeline
stop_timeline = _basics.stop_timeline

Average = _basics.Average
Sum = _basics.Sum
Adasum = _basics.Adasum
Min = _basics.Min
Max = _basics.Max
Product = _basics.Product


def poll(handle: int) -> bool:
    """Whether synchronize(handle) would return or raise at once instead of waiting.

    `handle` is the int of an `_async` call. ValueError for one that was synchronised already or never given out.
    """
    return _handles.poll(handle)


def synchronize(handle: int) -> Any:
    """Waits for an asynchronous operation and gives its result; None for a handle that is not outstanding.

    `handle` is the int of an `_async` call; it is used up, also by an error. HorovodInternalError: ranks disagree, or a
    rank is lost. KeyboardInterrupt leaves the handle as it is, and it may be waited for again.
    """
    return _handles.synchronize(handle)
