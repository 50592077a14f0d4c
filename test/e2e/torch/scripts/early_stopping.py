"""All ranks stop in the same epoch, which rank 0 decides by a validation loss that all of them share."""

import sys

import torch

import horovod.torch as hvd

hvd.init()
torch.manual_seed(hvd.rank())
model = torch.nn.Linear(2, 1)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.2), named_parameters=model.named_parameters()
)
best, stopped = float("inf"), None
for epoch in range(200):
    optimizer.zero_grad()
    data = torch.randn(16, 2)
    (model(data) - data.sum(1, keepdim=True)).square().mean().backward()
    optimizer.step()
    validation = torch.eye(2)
    value = hvd.allreduce((model(validation) - 1).square().mean().detach(), name="val_loss").item()
    stop = hvd.broadcast_object(value > best - 1e-9 if hvd.rank() == 0 else None, name="stop")
    best = min(best, value)
    if stop:
        stopped = epoch
        break
assert stopped is not None
assert hvd.allgather_object(stopped) == [stopped] * hvd.size()
sys.exit(0)
