"""Training with op=hvd.Adasum: the learning rate of one rank for any number of ranks."""

import torch

import horovod.torch as hvd

hvd.init()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5),
    named_parameters=model.named_parameters(),
    op=hvd.Adasum,
)
assert isinstance(optimizer, torch.optim.SGD)
losses = []
for step in range(40):
    data = torch.randn(16, 4, generator=torch.Generator().manual_seed(step * 10 + hvd.rank()))
    optimizer.zero_grad()
    loss = (model(data) - data.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert sum(losses[-5:]) < sum(losses[:5]) / 2, losses
weights = torch.cat([p.detach().flatten() for p in model.parameters()])
assert all(torch.equal(w, weights) for w in hvd.allgather(weights.unsqueeze(0)))
