"""Batch normalisation with the statistics of all ranks. Not built yet."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

__all__ = ["SyncBatchNorm"]


class SyncBatchNorm(_BatchNorm):
    """Normalises over the batches of all ranks. Not built yet: making one raises NotImplementedError."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        del args, kwargs
        raise NotImplementedError("horovod.torch.SyncBatchNorm is not built yet")

    def _check_input_dim(self, input: torch.Tensor) -> None:
        raise NotImplementedError("horovod.torch.SyncBatchNorm is not built yet")
