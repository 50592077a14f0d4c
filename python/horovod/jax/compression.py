"""Compression of the arrays that are sent to other ranks."""

from __future__ import annotations

from horovod._common.array_compression import Compression

__all__ = ["Compression"]
