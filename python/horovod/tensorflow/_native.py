"""Loads the op library, which registers the ops with the imported TensorFlow.

No op is executed here, because the first one initialises TensorFlow's devices, which a program may still configure.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import tensorflow as tf

from horovod._common.native import core
from horovod.tensorflow._private import leave_unordered, refusal

_LIBRARY = Path(core.__file__).resolve().parent / "tensorflow" / "_ops.so"

# tf.function must neither run these ops in the order of tracing nor prune them: see docs/design/tensorflow.md.
OPS = (
    "HorovodAllreduce",
    "HorovodGroupedAllreduce",
    "HorovodAllgather",
    "HorovodGroupedAllgather",
    "HorovodBroadcast",
    "HorovodAlltoall",
    "HorovodReducescatter",
    "HorovodGroupedReducescatter",
    "HorovodJoin",
    "HorovodSize",
    "HorovodProcessSetIncluded",
    "HorovodLocalSize",
    "HorovodRank",
    "HorovodLocalRank",
)


def load_ops() -> Any:
    """The module with a function for each op, `horovod_allreduce` and so on. ImportError if it cannot be loaded."""
    if not _LIBRARY.exists():
        raise ImportError(f"horovod.tensorflow: {_LIBRARY} is missing; reinstall horovod-gloo")
    leave_unordered(OPS)
    try:
        library = tf.load_op_library(str(_LIBRARY))
    except (tf.errors.OpError, RuntimeError, OSError) as error:
        raise refusal(f"it cannot load {_LIBRARY}: {error}") from error
    problem = ctypes.CDLL(str(_LIBRARY)).hvd_op_library_problem
    problem.restype = ctypes.c_char_p
    text = problem()
    if text is not None:
        raise refusal(text.decode())
    return library


MPI_LIB = load_ops()
