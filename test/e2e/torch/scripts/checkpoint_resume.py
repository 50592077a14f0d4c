"""Rank 0 writes checkpoints and restores the last one; everything else follows by broadcast."""

import os
import tempfile

import torch

import horovod.torch as hvd

hvd.init()
folder = hvd.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None)


def build(seed):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
    return model, torch.optim.Adam(model.parameters(), lr=0.05)


def wrap(model, optimizer):
    return hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())


def train(model, optimizer, epochs):
    for epoch in epochs:
        torch.manual_seed(7 * epoch + hvd.rank())
        optimizer.zero_grad()
        model(torch.randn(8, 3)).square().mean().backward()
        optimizer.step()
        if hvd.rank() == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, os.path.join(folder, f"checkpoint-{epoch}.pt"))


# All epochs at once, and the same interrupted after the third.
model, optimizer = build(0)
optimizer = wrap(model, optimizer)
train(model, optimizer, range(6))

resumed, resumed_optimizer = build(50 + hvd.rank())
resume_from = 2 if hvd.rank() == 0 else 0
resume_from = hvd.broadcast(torch.tensor(resume_from), root_rank=0, name="resume_from_epoch").item()
if hvd.rank() == 0:
    checkpoint = torch.load(os.path.join(folder, f"checkpoint-{resume_from}.pt"))
    resumed.load_state_dict(checkpoint["model"])
    resumed_optimizer.load_state_dict(checkpoint["optimizer"])
hvd.broadcast_parameters(resumed.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(resumed_optimizer, root_rank=0)
state = resumed_optimizer.state_dict()
resumed_optimizer = wrap(resumed, resumed_optimizer)
resumed_optimizer.load_state_dict(state)
train(resumed, resumed_optimizer, range(resume_from + 1, 6))
for (name, one), other in zip(model.named_parameters(), resumed.parameters(), strict=True):
    assert torch.equal(one, other), name
hvd.barrier()
