"""Horovod for PyTorch: `import horovod.torch as hvd`.

Without the native core the import prints what is missing and warns, and the module has no functions.
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
    __all__ = ["HorovodInternalError"]
else:
    check_installed_version("pytorch", torch.__version__)
    from horovod._common.session import *  # noqa: F403
    from horovod.common.process_sets import add_process_set, remove_process_set
    from horovod.torch import elastic, mpi_ops
    from horovod.torch._compile import exclude_from_dynamo as _exclude_from_dynamo
    from horovod.torch.compression import Compression
    from horovod.torch.functions import (
        allgather_object,
        broadcast_object,
        broadcast_optimizer_state,
        broadcast_parameters,
        join_and_broadcast,
    )
    from horovod.torch.mpi_ops import *  # noqa: F403
    from horovod.torch.optimizer import DistributedOptimizer
    from horovod.torch.sync_batch_norm import SyncBatchNorm

    _exclude_from_dynamo()

    __all__ = [
        "add_process_set",
        "remove_process_set",
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
    __all__ += mpi_ops.__all__
    __all__.remove("handle_average_backwards_compatibility")
