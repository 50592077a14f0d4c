"""Loads the op library: makes the core register its ops with the TensorFlow that was imported.

Nothing is executed here, because the first op initialises TensorFlow's devices, which the program wants to configure.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import tensorflow as tf

from horovod._common.native import core
from horovod.tensorflow._private import leave_unordered, refusal

_LIBRARY = Path(core.__file__).resolve().parent / "tensorflow" / "_ops.so"

# Collectives of one function must neither be chained in the order of tracing nor be left out, and queries neither: see
# docs/design/tensorflow.md.
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
    """The module with a function for each op, `horovod_allreduce` and so on. ImportError when they cannot be had."""
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
