"""Learning rate: scaled by size(), warmed up by the batch, then decayed by the epoch."""

import torch

import horovod.torch as hvd

hvd.init()
torch.manual_seed(1)
model = torch.nn.Linear(3, 1)
base = 0.01
optimizer = torch.optim.SGD(model.parameters(), lr=base * hvd.size())
warmup = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1.0 / hvd.size(), total_iters=5)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
decay = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[2, 3], gamma=0.1)
rates = []
for epoch in range(4):
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(4, 3)).square().mean().backward()
        optimizer.step()
        if epoch == 0:
            warmup.step()
        rates.append(optimizer.param_groups[0]["lr"])
    decay.step()
assert abs(rates[4] - base * hvd.size()) < 1e-9, rates
assert rates[0] < rates[4]
assert abs(rates[-1] - base * hvd.size() * 0.01) < 1e-9, rates
assert hvd.allgather_object(rates)[0] == rates
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
for value in (1.0, 2.0, 3.0):
    plateau.step(hvd.allreduce(torch.tensor(value)).item())
assert optimizer.param_groups[0]["lr"] < rates[-1]
