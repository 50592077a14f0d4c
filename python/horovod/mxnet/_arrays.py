"""The arrays of a call: what is refused, where they lie, and new ones for results."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from horovod.mxnet._library import mx

__all__ = ["check_arrays", "empty_like", "from_core", "is_on_host", "to_device", "to_host", "with_rows"]

_TYPES = ("float32", "float64", "float16", "uint8", "int32", "int8", "int64")
_ONEDNN_TYPES = ("float32", "uint8", "int8", "int32")
_HOST = ("cpu", "cpu_pinned", "cpu_shared")


def check_arrays(tensors: Sequence[Any], caller: str) -> None:
    """AssertionError for what is no NDArray; ValueError for a sparse one, a type that does not travel, and a group of
    several contexts.
    """
    for tensor in tensors:
        if not isinstance(tensor, mx.nd.NDArray):
            raise AssertionError(f"hvd.{caller}(): expected an mxnet NDArray, got {type(tensor).__name__}")
        if tensor.stype != "default":
            raise ValueError(f"hvd.{caller}(): a {tensor.stype} array is not supported; use tostype('default')")
        name = np.dtype(tensor.dtype).name
        if name not in _TYPES:
            raise ValueError(f"hvd.{caller}(): type {name} is not supported; supported are {', '.join(_TYPES)}")
    contexts = {str(tensor.context) for tensor in tensors}
    if len(contexts) > 1:
        raise ValueError(
            f"hvd.{caller}(): the arrays of a group must be in one context, got {', '.join(sorted(contexts))}"
        )


def is_on_host(tensor: Any) -> bool:
    return tensor.context.device_type in _HOST


def to_host(tensors: Sequence[Any]) -> list[Any]:
    """The arrays themselves, or of those on a GPU copies in the host's memory, which the engine makes in its time."""
    return [tensor if is_on_host(tensor) else tensor.as_in_context(mx.cpu()) for tensor in tensors]


@functools.cache
def _has_onednn() -> bool:
    return bool(mx.runtime.Features().is_enabled("MKLDNN"))


def with_rows(tensors: Sequence[Any]) -> list[Any]:
    """The arrays, or copies of those that oneDNN may have left in a layout of its own, for calls that only read them.

    What layout an array has is known when all that writes to it has run. A copy has rows.
    """
    return [
        tensor.copy() if tensor.ndim >= 3 and np.dtype(tensor.dtype).name in _ONEDNN_TYPES and _has_onednn() else tensor
        for tensor in tensors
    ]


def to_device(made: Sequence[Any], like: Sequence[Any]) -> list[Any]:
    """The results where the arguments are."""
    return [
        result if is_on_host(tensor) else result.as_in_context(tensor.context)
        for result, tensor in zip(made, like, strict=True)
    ]


def _of_class(array: Any, tensor: Any) -> Any:
    """`array` as one of mx.np, if `tensor` is."""
    return array.as_np_ndarray() if isinstance(tensor, mx.np.ndarray) else array


def empty_like(tensor: Any) -> Any:
    """A new array of the shape, type, class and context of one in the host's memory."""
    with mx.util.np_shape(True):  # in which () and (0, 3) are shapes like others
        return _of_class(mx.nd.empty(tensor.shape, tensor.context, tensor.dtype), tensor)


def from_core(capsule: Any, tensor: Any) -> Any:
    """The result in a capsule of DLPack, of the class of `tensor`."""
    with mx.util.np_shape(True):
        return _of_class(mx.nd.from_dlpack(capsule), tensor)
