"""Compression of the arrays that are sent to other ranks."""

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
    """Sends arrays of float32 and float64 as float16."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        is_larger = np.dtype(tensor.dtype).name in ("float32", "float64")
        return (tensor.astype("float16"), tensor.dtype) if is_larger else (tensor, None)


class Compression:
    """The choices for the `compression` argument of DistributedTrainer(): none, fp16.

    Each has compress(tensor), which returns the array to send and a context, and decompress(tensor, context).
    """

    none = Compressor
    fp16 = _Fp16Compressor
