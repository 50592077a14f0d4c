"""Horovod for TensorFlow: `import horovod.tensorflow as hvd`. Works eagerly, in tf.function and in TF1 graphs."""

from __future__ import annotations

from horovod._common import session as _common_session
from horovod._common.session import *  # noqa: F403
from horovod.common.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from horovod.common.util import split_list
from horovod.tensorflow import elastic
from horovod.tensorflow._collectives import (
    allreduce,
    grouped_allreduce,
    grouped_reducescatter,
    reducescatter,
)
from horovod.tensorflow._optimizer import DistributedOptimizer
from horovod.tensorflow._reduction import _make_allreduce_grads_fn
from horovod.tensorflow._tape import DistributedGradientTape, PartialDistributedGradientTape
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.functions import (
    BroadcastGlobalVariablesHook,
    allgather_object,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
from horovod.tensorflow.mpi_ops import (
    _allreduce,
    _grouped_allreduce,
    _grouped_reducescatter,
    _reducescatter,
    allgather,
    alltoall,
    broadcast,
    broadcast_,
    check_num_rank_power_of_2,
    gpu_available,
    grouped_allgather,
    handle_average_backwards_compatibility,
    join,
    local_rank_op,
    local_size_op,
    process_set_included_op,
    rank_op,
    size_op,
)
from horovod.tensorflow.sync_batch_norm import SyncBatchNormalization
from horovod.tensorflow.util import (
    _cache,
    _executing_eagerly,
    _make_subgraph,
    refs_to_vars,
    vars_to_refs,
)

__all__ = [
    "ProcessSet",
    "global_process_set",
    "add_process_set",
    "remove_process_set",
    # collectives
    "allreduce",
    "grouped_allreduce",
    "reducescatter",
    "grouped_reducescatter",
    "allgather",
    "grouped_allgather",
    "alltoall",
    "broadcast",
    "broadcast_",
    "elastic",
    "join",
    "rank_op",
    "local_rank_op",
    "size_op",
    "local_size_op",
    "process_set_included_op",
    "check_num_rank_power_of_2",
    "handle_average_backwards_compatibility",
    "gpu_available",
    "_allreduce",
    "_grouped_allreduce",
    "_reducescatter",
    "_grouped_reducescatter",
    # training
    "Compression",
    "DistributedOptimizer",
    "DistributedGradientTape",
    "PartialDistributedGradientTape",
    "LocalGradientAggregationHelper",
    "SyncBatchNormalization",
    "BroadcastGlobalVariablesHook",
    "allgather_object",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "split_list",
    "_make_allreduce_grads_fn",
    "_cache",
    "_executing_eagerly",
    "_make_subgraph",
    "refs_to_vars",
    "vars_to_refs",
]
__all__ += _common_session.__all__
