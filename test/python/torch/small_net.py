"""The small network that the tests of DistributedOptimizer train on a fake core."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from fake_core import Call, FakeCore


def net() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def sgd(model: nn.Module, **options: Any) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=0.1, **options)


def wrap(hvd: Any, model: nn.Module, optimizer: torch.optim.Optimizer | None = None, **options: Any) -> Any:
    options.setdefault("named_parameters", model.named_parameters())
    return hvd.DistributedOptimizer(optimizer or sgd(model), **options)


def backward(model: nn.Module) -> None:
    model(torch.ones(5, 3)).square().sum().backward()


def sent(core: FakeCore) -> list[Call]:
    """The submissions of gradients; not what ranks tell each other beside them."""
    return [call for call in core.calls if not call.name.endswith((".presence", ".parameters"))]


def sent_names(core: FakeCore) -> list[str]:
    return [call.name for call in sent(core)]
