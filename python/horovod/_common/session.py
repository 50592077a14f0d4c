"""The session of this process under the names that every framework module offers: init(), rank(), size() and so on.

A framework module imports all names of `__all__` and so offers them as its own. When it is imported, it registers with
`basics` what it does when a session starts or ends.
"""

from __future__ import annotations

import weakref
from typing import Protocol

from horovod.common.basics import HorovodBasics
from horovod.common.process_sets import _setup
from horovod.common.util import get_average_backwards_compatibility_fun

__all__ = [
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
    "Average",
    "Sum",
    "Adasum",
    "Min",
    "Max",
    "Product",
]

basics = HorovodBasics()
_setup(basics)


class SessionFollower(Protocol):
    """Holds something half done between calls, such as gradients of several passes, which ends with its session."""

    def on_session_start(self) -> None: ...


_followers: weakref.WeakSet[SessionFollower] = weakref.WeakSet()


def follow_sessions(follower: SessionFollower) -> None:
    """Calls follower.on_session_start() whenever a session starts, as long as `follower` lives."""
    _followers.add(follower)


def _tell_followers(started: bool) -> None:
    if started:
        for follower in list(_followers):
            follower.on_session_start()


basics._add_hooks(_tell_followers, lambda: None)

handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(basics)

init = basics.init
shutdown = basics.shutdown
is_initialized = basics.is_initialized
rank = basics.rank
size = basics.size
local_rank = basics.local_rank
local_size = basics.local_size
cross_rank = basics.cross_rank
cross_size = basics.cross_size
is_homogeneous = basics.is_homogeneous
mpi_threads_supported = basics.mpi_threads_supported
mpi_enabled = basics.mpi_enabled
mpi_built = basics.mpi_built
gloo_enabled = basics.gloo_enabled
gloo_built = basics.gloo_built
nccl_built = basics.nccl_built
ddl_built = basics.ddl_built
ccl_built = basics.ccl_built
cuda_built = basics.cuda_built
rocm_built = basics.rocm_built
start_timeline = basics.start_timeline
stop_timeline = basics.stop_timeline

Average = basics.Average
Sum = basics.Sum
Adasum = basics.Adasum
Min = basics.Min
Max = basics.Max
Product = basics.Product
