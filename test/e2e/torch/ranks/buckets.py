"""Models whose gradients are views of buckets, and their twins without."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import horovod.torch as hvd
from training import batch, loss, net, wrap

VIEWS = {"gradient_as_bucket_view": True}


def gradients_of(optimizer: Any) -> list[Any]:
    return list(optimizer._reducer._gradients.values())


def are_views(optimizer: Any) -> list[bool]:
    return [g.bucket is not None and g.bucket.holds(g, g.parameter.grad) for g in gradients_of(optimizer)]


def pair(dtype: torch.dtype = torch.float64, **options: Any) -> tuple[nn.Module, Any, nn.Module, Any]:
    """A model with buckets, and one without that sees the batches of all ranks."""
    model, twin = net(dtype), net(dtype)
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), **VIEWS, **options)
    return model, optimizer, twin, torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9)


def take_steps(model: nn.Module, optimizer: Any, count: int, first: int = 0) -> None:
    for step in range(first, first + count):
        optimizer.zero_grad()
        loss(model, batch(hvd.rank(), step)).backward()
        optimizer.step()
