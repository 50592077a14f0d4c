"""Shows Adasum converging where neither Average nor Sum does.

    horovodrun -np 2 python examples/pytorch_adasum.py

A recommender in miniature: the rating of a user is a weighting of item features, which is the same for all users,
plus the user's own bias. Each rank sees users of its own. All ranks' gradients of the weighting point the same way: to
add them up is a step too far. Their gradients of the biases have nothing in common: to average them is a step too
short. Adasum looks at each layer and averages the former and adds the latter, so every layer moves at the speed of one
process.
"""

from __future__ import annotations

import sys

import torch
from torch import nn

import horovod.torch as hvd

FEATURES = 4
USERS_PER_RANK = 4
SAMPLES = 512
STEPS = 60
LEARNING_RATE = 1.0
WANTED_LOSS = 1e-9


class Ratings(nn.Module):
    """What users think of items."""

    def __init__(self, users: int) -> None:
        super().__init__()
        self.weighting = nn.Linear(FEATURES, 1, bias=False)
        self.biases = nn.Embedding(users, 1)
        nn.init.zeros_(self.weighting.weight)
        nn.init.zeros_(self.biases.weight)

    def forward(self, items: torch.Tensor, users: torch.Tensor) -> torch.Tensor:
        return (self.weighting(items) + self.biases(users)).squeeze(1)


def data_of_this_rank() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Items, users and ratings without noise, so that the loss can reach zero."""
    truth = torch.Generator().manual_seed(1)
    weighting = torch.randn(FEATURES, generator=truth)
    biases = torch.randn(USERS_PER_RANK * hvd.size(), generator=truth)
    own = torch.Generator().manual_seed(100 + hvd.rank())
    items = torch.randn(SAMPLES, FEATURES, generator=own)
    users = hvd.rank() * USERS_PER_RANK + torch.arange(SAMPLES) % USERS_PER_RANK
    return items, users, items @ weighting + biases[users]


def train(op: int) -> float:
    """The loss over all ranks after STEPS steps of plain gradient descent with this op; infinity if it diverges."""
    model = Ratings(USERS_PER_RANK * hvd.size())
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=LEARNING_RATE), named_parameters=model.named_parameters(), op=op
    )
    items, users, ratings = data_of_this_rank()
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = 0.5 * (model(items, users) - ratings).square().mean()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        final = hvd.allreduce(0.5 * (model(items, users) - ratings).square().mean()).item()
    return final if final < 1e6 else float("inf")


def main() -> int:
    hvd.init()
    torch.set_default_dtype(torch.float64)
    losses = {name: train(op) for name, op in (("Average", hvd.Average), ("Sum", hvd.Sum), ("Adasum", hvd.Adasum))}
    if hvd.rank() == 0:
        for name, loss in losses.items():
            verdict = "converged" if loss < WANTED_LOSS else "did not converge"
            print(f"{name:8} loss {loss:9.3g} after {STEPS} steps on {hvd.size()} rank(s): {verdict}", flush=True)
    others_failed = hvd.size() == 1 or min(losses["Average"], losses["Sum"]) >= WANTED_LOSS
    return 0 if losses["Adasum"] < WANTED_LOSS and others_failed else 1


if __name__ == "__main__":
    sys.exit(main())
