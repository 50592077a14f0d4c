"""Loads the op library: makes the core register its ops with the TensorFlow that was imported.

Nothing is executed here, because the first op initialises TensorFlow's devices, which the program wants to configure.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import tensorflow as tf

from horovod import __version__
from horovod._common.native import core

_LIBRARY = Path(core.__file__).resolve().parent / "tensorflow" / "_ops.so"
_SUPPORTED = "TensorFlow 2.15 to 2.21"

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


def _refuse(why: str) -> ImportError:
    return ImportError(
        f"horovod.tensorflow {__version__} works with {_SUPPORTED}; TensorFlow {tf.__version__} is installed, and {why}"
    )


def _leave_unordered() -> None:
    """Tells tf.function that our ops run whenever their inputs are there, and always."""
    name = "MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS"
    try:
        from tensorflow.python.framework import auto_control_deps
    except ImportError as error:
        raise _refuse("its tf.function orders stateful ops in an unknown way") from error
    known = getattr(auto_control_deps, name, None)
    if not isinstance(known, frozenset):
        raise _refuse(f"its auto_control_deps has no {name}: collectives of one function would run one after another")
    setattr(auto_control_deps, name, known | frozenset(OPS))


def load_ops() -> Any:
    """The module with a function for each op, `horovod_allreduce` and so on. ImportError when they cannot be had."""
    if not _LIBRARY.exists():
        raise ImportError(f"horovod.tensorflow: {_LIBRARY} is missing; reinstall horovod-gloo")
    _leave_unordered()
    try:
        library = tf.load_op_library(str(_LIBRARY))
    except (tf.errors.OpError, RuntimeError, OSError) as error:
        raise _refuse(f"it cannot load {_LIBRARY}: {error}") from error
    problem = ctypes.CDLL(str(_LIBRARY)).hvd_op_library_problem
    problem.restype = ctypes.c_char_p
    text = problem()
    if text is not None:
        raise _refuse(text.decode())
    return library


MPI_LIB = load_ops()
