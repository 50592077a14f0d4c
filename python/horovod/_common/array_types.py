"""Types of numpy arrays that the core knows, and arrays in memory that it allocated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from horovod._common.native import core

if TYPE_CHECKING:
    from horovod._core import Handle

__all__ = ["CoreOutput", "reducible_code", "transferable"]

Array = Any  # np.ndarray; its element types vary

_CODES = {
    "uint8": core.DTYPE_UINT8,
    "int8": core.DTYPE_INT8,
    "uint16": core.DTYPE_UINT16,
    "int16": core.DTYPE_INT16,
    "int32": core.DTYPE_INT32,
    "int64": core.DTYPE_INT64,
    "float16": core.DTYPE_FLOAT16,
    "float32": core.DTYPE_FLOAT32,
    "float64": core.DTYPE_FLOAT64,
    "bool": core.DTYPE_BOOL,
    "bfloat16": core.DTYPE_BFLOAT16,  # of the package ml_dtypes
}
_REDUCIBLE = [name for name in _CODES if name != "uint16"]


def reducible_code(array: Array, op: int, caller: str) -> int:
    """The core's code of the array's type. ValueError for types that cannot be reduced."""
    name = array.dtype.name
    if name not in _REDUCIBLE:
        raise ValueError(f"{caller}: type {name} is not supported; supported are {', '.join(_REDUCIBLE)}")
    if name == "bool" and op not in (core.REDUCE_MIN, core.REDUCE_MAX):
        raise ValueError(f"{caller}: type bool is not supported with this op; use an integer type")
    return _CODES[name]


def transferable(array: Array) -> tuple[Array, int]:
    """An array of a type that both the core and numpy's DLPack know, over the same memory, and the type's code.

    Others travel as integers of their size, or with a last dimension of bytes.
    """
    name = array.dtype.name
    if name == "bfloat16":
        return array.view(np.uint16), core.DTYPE_UINT16
    if name == "bool":
        return array.view(np.uint8), core.DTYPE_UINT8
    if name in _CODES:
        return array, _CODES[name]
    return array.reshape((*array.shape, 1)).view(np.uint8), core.DTYPE_UINT8


class CoreOutput:
    """A result in memory that the core allocated, in the form that numpy.from_dlpack() takes."""

    def __init__(self, native: Handle) -> None:
        self._native = native

    def __dlpack__(self, **_: Any) -> Any:
        return self._native.output_dlpack()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)
