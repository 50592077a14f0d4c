"""Compression of the tensors that are sent to other ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ["Compression", "Compressor"]


class Compressor:
    """Base class of compressors: compress() returns the tensor to send and a context, decompress() reverses it."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Returns the tensor to send for `tensor`, and the context that decompress() needs."""
        raise NotImplementedError("a Compressor must define compress(tensor)")

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Returns the received `tensor` in the type of the original; `ctx` is the context of compress()."""
        raise NotImplementedError("a Compressor must define decompress(tensor, ctx)")


class NoneCompressor(Compressor):
    """Sends tensors unchanged."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor


class FP16Compressor(Compressor):
    """Sends floating point tensors as float16."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        if not tensor.dtype.is_floating:
            return tensor, None
        return tf.cast(tensor, tf.float16), tensor.dtype

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor if ctx is None else tf.cast(tensor, ctx)


class Compression:
    """The choices for the `compression` argument of allreduce() and DistributedOptimizer(): none, fp16."""

    none = NoneCompressor
    fp16 = FP16Compressor
