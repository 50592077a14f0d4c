"""Compression of arrays on their way to other ranks: numpy's, JAX's, and those of a function that is being compiled."""

from __future__ import annotations

from typing import Any

__all__ = ["Compression", "Compressor"]


class Compressor:
    """Base of compressors: `compress` gives what travels and a context, `decompress` undoes it."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The array to send and what decompress() needs to know."""
        raise NotImplementedError("a Compressor must define compress(tensor)")

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The received array in the form of the original."""
        raise NotImplementedError("a Compressor must define decompress(tensor, ctx)")


class NoneCompressor(Compressor):
    """Leaves arrays as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor


class FP16Compressor(Compressor):
    """Sends floating point arrays as float16."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        if "float" not in tensor.dtype.name:
            return tensor, None
        return tensor.astype("float16"), tensor.dtype

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor if ctx is None else tensor.astype(ctx)


class Compression:
    """The choices for the `compression` argument of allreduce and DistributedOptimizer."""

    none = NoneCompressor
    fp16 = FP16Compressor
