"""The ops and the session, gathered under their traditional module name."""

from __future__ import annotations

from horovod._common import session as _session
from horovod._common.session import *  # noqa: F403
from horovod._common.session import basics as _basics
from horovod._common.session import handle_average_backwards_compatibility
from horovod.common.util import gpu_available
from horovod.tensorflow import _gradients  # noqa: F401  registers them
from horovod.tensorflow._dense import (
    _allreduce,
    _grouped_allreduce,
    _grouped_reducescatter,
    _reducescatter,
    allgather,
    alltoall,
    broadcast,
    grouped_allgather,
    join,
    local_rank_op,
    local_size_op,
    process_set_included_op,
    rank_op,
    size_op,
)
from horovod.tensorflow._native import MPI_LIB
from horovod.tensorflow._session import check_num_rank_power_of_2
from horovod.tensorflow.functions import broadcast_
from horovod.tensorflow.util import normalize as _normalize_name

__all__ = [
    "MPI_LIB",
    "_allreduce",
    "_basics",
    "_grouped_allreduce",
    "_grouped_reducescatter",
    "_normalize_name",
    "_reducescatter",
    "allgather",
    "alltoall",
    "broadcast",
    "broadcast_",
    "check_num_rank_power_of_2",
    "gpu_available",
    "grouped_allgather",
    "handle_average_backwards_compatibility",
    "join",
    "local_rank_op",
    "local_size_op",
    "process_set_included_op",
    "rank_op",
    "size_op",
]
__all__ += _session.__all__
