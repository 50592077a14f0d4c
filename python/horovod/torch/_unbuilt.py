"""Public names whose operations are not built yet, with their final signatures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from horovod._common.native import core
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._session import not_built
from horovod.torch.compression import Compression, Compressor

Average = core.REDUCE_AVERAGE


def alltoall(
    tensor: torch.Tensor,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends rows of `tensor` to each rank. Not built yet."""
    raise not_built("alltoall")


def alltoall_async(
    tensor: torch.Tensor,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts an alltoall. Not built yet."""
    raise not_built("alltoall_async")


def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Reduces `tensor` and gives each rank its share of rows. Not built yet."""
    raise not_built("reducescatter")


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Starts a reducescatter. Not built yet."""
    raise not_built("reducescatter_async")


def grouped_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """Reduces and scatters several tensors together. Not built yet."""
    raise not_built("grouped_reducescatter")


def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Starts a grouped reducescatter. Not built yet."""
    raise not_built("grouped_reducescatter_async")


def join(device: int = -1) -> int:
    """Says that this rank has no more data; the others may go on with allreduce. Not built yet."""
    raise not_built("join")
