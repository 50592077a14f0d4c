"""Compression of arrays that are sent to other ranks, for frameworks whose arrays are cast as numpy's are."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["Compression", "Compressor"]


class Compressor:
    """Base class of compressors, and the one that sends arrays unchanged."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Returns the array to send for `tensor`, and the context that decompress() needs."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Returns the received `tensor` in the type of the original; `ctx` is the context of compress()."""
        return tensor if ctx is None else tensor.astype(ctx)


class _Fp16Compressor(Compressor):
    """Sends floating-point arrays as float16; of JAX also while a function is compiled."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        dtype = tensor.dtype  # MXNet's are classes of numpy
        name = dtype.name if hasattr(dtype, "name") else np.dtype(dtype).name
        is_other_float = "float" in name and name != "float16"
        return (tensor.astype("float16"), dtype) if is_other_float else (tensor, None)


class Compression:
    """The choices for the argument `compression`: none, and fp16, which sends floating-point elements as float16.

    Each has compress(tensor), which returns the array to send and a context, and decompress(tensor, context).
    """

    none = Compressor
    fp16 = _Fp16Compressor
