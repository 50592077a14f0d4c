"""Compression of the arrays that are sent to other ranks."""

from __future__ import annotations

from typing import Any

__all__ = ["Compression"]


class _NoneCompressor:
    """Sends arrays unchanged."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor if ctx is None else tensor.astype(ctx)


class _Fp16Compressor(_NoneCompressor):
    """Sends floating-point arrays as float16, those of numpy and of JAX, also while a function is compiled."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return (tensor.astype("float16"), tensor.dtype) if "float" in tensor.dtype.name else (tensor, None)


class Compression:
    """The choices for the `compression` argument of allreduce() and DistributedOptimizer(): none, fp16.

    Each has compress(tensor), which returns the array to send and a context, and decompress(tensor, context).
    """

    none = _NoneCompressor
    fp16 = _Fp16Compressor
