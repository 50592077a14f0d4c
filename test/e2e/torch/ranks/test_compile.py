"""torch.compile: a collective breaks the graph once where it is called, an optimizer not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import horovod.torch as hvd
from training import assert_all_ranks_hold, batch, loss, net, wrap

pytestmark = pytest.mark.two_ranks


def barrier_between(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    hvd.barrier()
    return y + 1


def overwritten(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    hvd.allreduce_(y, name="in place")
    return y + 1


def two(x: torch.Tensor) -> torch.Tensor:
    return hvd.allreduce(hvd.allreduce(x * 2, name="one") + 1, name="two", op=hvd.Sum) * 2


FUNCTIONS: dict[str, tuple[Callable[[torch.Tensor], Any], int]] = {
    "allreduce": (lambda x: hvd.allreduce(x * 2, name="a") + 1, 1),
    "allreduce_": (overwritten, 1),
    "two": (two, 2),
    "grouped_allreduce": (lambda x: sum(hvd.grouped_allreduce([x * 2, x * 3], name="g")), 1),
    "allgather": (lambda x: hvd.allgather(x * 2, name="h") + 1, 1),
    "broadcast": (lambda x: hvd.broadcast(x * 2, 0, name="b") + 1, 1),
    "alltoall": (lambda x: hvd.alltoall(x * 2, name="t") + 1, 1),
    "reducescatter": (lambda x: hvd.reducescatter(x * 2, name="s") + 1, 1),
    "barrier": (barrier_between, 1),
}


def breaks() -> int:
    return sum(torch._dynamo.utils.counters["graph_break"].values())


@pytest.mark.parametrize("needs_gradient", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_collective_is_one_break(name: str, needs_gradient: bool) -> None:
    function, collectives = FUNCTIONS[name]
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    x = torch.full((hvd.size(), 3), float(hvd.rank()), requires_grad=needs_gradient)
    compiled = torch.compile(function, backend="eager")
    results = [compiled(x), compiled(x), function(x)]
    for result in results[:2]:
        assert torch.equal(result, results[2])
    assert breaks() == collectives


def test_training_a_compiled_model_breaks_nothing() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    model, twin = net(), net()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    optimizers = [wrap(m, torch.optim.SGD(m.parameters(), lr=0.1)) for m in (model, twin)]
    for step in range(3):
        for forward, optimizer in zip((compiled, twin), optimizers, strict=True):
            optimizer.zero_grad()
            loss(forward, batch(hvd.rank(), step)).backward()
            optimizer.step()
    assert breaks() == 0
    for own, wanted in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(own, wanted)
    assert_all_ranks_hold(model)
