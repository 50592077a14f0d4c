"""The small network that the tests of training use, and what they expect of all ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import horovod.torch as hvd


def halves() -> list[torch.dtype]:
    """The 16-bit types that this torch computes with on a CPU: before 2.2 without float16."""
    try:
        nn.Linear(1, 1).half()(torch.ones(1, 1, dtype=torch.float16))
        nn.BatchNorm1d(1)(torch.ones(2, 1, dtype=torch.float16))
    except RuntimeError:
        return [torch.bfloat16]
    return [torch.bfloat16, torch.float16]


def net(dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(11)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).to(dtype)


def batch(rank: int, step: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(6, 4, generator=generator).to(dtype)


def loss(model: nn.Module, data: torch.Tensor) -> torch.Tensor:
    return (model(data) - data[:, :3]).square().mean()


def twin_backward(twin: nn.Module, step: int) -> None:
    """The gradients that a model has once they are averaged, for a twin that sees the batches of all ranks."""
    loss(twin, torch.cat([batch(rank, step) for rank in range(hvd.size())])).backward()


def backward_both(model: nn.Module, optimizer: Any, twin: nn.Module, twin_optimizer: Any, step: int) -> None:
    """Fresh gradients: of the model for this rank's batch, of its twin for those of all ranks."""
    optimizer.zero_grad()
    twin_optimizer.zero_grad()
    loss(model, batch(hvd.rank(), step)).backward()
    twin_backward(twin, step)


def train_both(model: nn.Module, optimizer: Any, twin: nn.Module, twin_optimizer: Any, steps: int = 3) -> None:
    """They stay equal."""
    for step in range(steps):
        backward_both(model, optimizer, twin, twin_optimizer, step)
        optimizer.step()
        twin_optimizer.step()
    assert_close(model, twin, rtol=1e-9, atol=1e-12)


def wrap(model: nn.Module, optimizer: torch.optim.Optimizer, **options: Any) -> Any:
    return hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), **options)


def train_with_scaler(model: nn.Module, optimizer: Any, set_to_none: bool = True) -> None:
    """Three steps in float32."""
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for step in range(3):
        optimizer.zero_grad(set_to_none=set_to_none)
        scaler.scale(loss(model, batch(hvd.rank(), step, torch.float32))).backward()
        optimizer.synchronize()
        scaler.unscale_(optimizer)
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()


def assert_close(one: nn.Module, other: nn.Module, **tolerance: float) -> None:
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, **tolerance)


def assert_all_ranks_hold(model: nn.Module) -> None:
    """Bitwise the same parameters everywhere."""
    for parameter in model.parameters():
        everybodys = hvd.allgather(parameter.detach().unsqueeze(0))
        assert all(torch.equal(other, parameter) for other in everybodys)
