"""The public functions on torch tensors and of the session, gathered under their traditional module name."""

from __future__ import annotations

from typing import Any

from horovod._common import session as _session
from horovod._common.session import *  # noqa: F403
from horovod._common.session import basics as _basics  # noqa: F401  tests and integrations reach it here
from horovod._common.session import handle_average_backwards_compatibility
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._allgather import (
    allgather,
    allgather_async,
    grouped_allgather,
    grouped_allgather_async,
    sparse_allreduce_async,
)
from horovod.torch._allreduce import (
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
)
from horovod.torch._alltoall import alltoall, alltoall_async
from horovod.torch._broadcast import barrier, broadcast, broadcast_, broadcast_async, broadcast_async_
from horovod.torch._join import join
from horovod.torch._reducescatter import (
    grouped_reducescatter,
    grouped_reducescatter_async,
    reducescatter,
    reducescatter_async,
)
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
    "handle_average_backwards_compatibility",
]
__all__ += _session.__all__

_handle_map = _handles.pending


def poll(handle: int) -> bool:
    """Whether synchronize(handle) would return or raise at once instead of waiting.

    `handle` is the int of an `_async` call. ValueError for one that was synchronised already or never existed.
    """
    return _handles.poll(handle)


def synchronize(handle: int) -> Any:
    """Waits for an asynchronous operation and returns its result; None for a handle that is not outstanding.

    `handle` is the int of an `_async` call; it is used up, also by an error. HorovodInternalError: ranks disagree, or a
    rank is lost. After KeyboardInterrupt the handle may be waited for again.
    """
    return _handles.synchronize(handle)
