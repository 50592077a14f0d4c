"""Compression of the tensors that are sent to other ranks."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["Compression", "Compressor"]


class Compressor:
    """Base class of compressors: compress() returns the tensor to send and a context, decompress() reverses it."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Returns the tensor to send for `tensor`, and the context that decompress() needs."""
        raise NotImplementedError("a Compressor must define compress(tensor)")

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Returns the received `tensor` in the type of the original; `ctx` is the context of compress()."""
        raise NotImplementedError("a Compressor must define decompress(tensor, ctx)")


class NoneCompressor(Compressor):
    """Sends tensors unchanged."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor


class _CastCompressor(Compressor):
    """Sends floating point tensors in a smaller floating point type."""

    wire_type: torch.dtype

    @classmethod
    def _compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        if not tensor.dtype.is_floating_point or tensor.element_size() < 2:  # nor is it made longer
            return tensor, None
        return tensor.to(cls.wire_type), tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor if ctx is None else tensor.to(ctx)


class FP16Compressor(_CastCompressor):
    """Sends floating point tensors as float16."""

    wire_type = torch.float16

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return FP16Compressor._compress(tensor)


class BF16Compressor(_CastCompressor):
    """Sends floating point tensors as bfloat16: the range of float32 with fewer digits."""

    wire_type = torch.bfloat16

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return BF16Compressor._compress(tensor)


class Compression:
    """The choices for the `compression` argument of allreduce() and DistributedOptimizer(): none, fp16, bf16."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
