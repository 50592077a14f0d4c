"""MXNet itself, and the way into its engine: the one place that imports it.

The core's operation is pushed into the engine of the libmxnet that Python has loaded. ImportError if there is none, or
it lacks what that needs.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Sequence
from typing import Any

from horovod._common.native import core

__all__ = ["RUNS_AT_ONCE", "mx", "push"]


def _import_mxnet() -> Any:
    try:
        return importlib.import_module("mxnet")
    except AttributeError as error:  # of numpy, whose old names MXNet uses
        raise ImportError(
            f"horovod.mxnet: MXNet cannot be imported: {error}. MXNet 1.9 needs numpy < 1.24 (pip install 'numpy<1.24')"
        ) from error


# Whether MXNet has the engine that runs each operation in the thread that pushes it: it looks once, when it is loaded.
RUNS_AT_ONCE = os.environ.get("MXNET_ENGINE_TYPE") == "NaiveEngine"
mx: Any = _import_mxnet()


def _load_engine() -> None:
    library = mx.base._LIB
    try:
        core.mxnet_load(library._handle)
    except RuntimeError as error:
        raise ImportError(
            f"horovod.mxnet: cannot use MXNet {mx.__version__} of {library._name}: {error}; tried is MXNet 1.9.1"
        ) from error


_load_engine()


def _address(array: Any) -> int:
    return int(array.handle.value)


@functools.cache
def _check_identity() -> None:
    """The core reads out of MXNet's object which arrays are parts of one memory. RuntimeError if it can't."""
    whole, other = mx.nd.zeros(4), mx.nd.zeros(4)
    first, last = whole[0:2], whole[2:4]
    together = core.mxnet_same_memory(_address(first), _address(last))
    if not together or core.mxnet_same_memory(_address(whole), _address(other)):
        raise RuntimeError(
            f"horovod.mxnet: MXNet {mx.__version__} has arrays of an unknown layout, in which arrays that share memory "
            "cannot be told; tried is MXNet 1.9.1"
        )


def push(
    call: tuple[int, str, int, Sequence[int]],
    reduction: tuple[int, float, float, int],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    grouped: bool,
    priority: int,
) -> Any:
    """Pushes one collective into MXNet's engine. `outputs`: as many as `inputs`, or none where the core allocates."""
    if len(inputs) + len(outputs) > 1:
        _check_identity()
    read, written = (list(map(_address, arrays)) for arrays in (inputs, outputs))
    return core.mxnet_push(call, reduction, read, written, grouped, priority)
