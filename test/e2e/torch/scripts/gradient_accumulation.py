"""Several backward passes for each step, as scripts with large effective batches do."""

import torch

import horovod.torch as hvd

PASSES = 4

hvd.init()
torch.manual_seed(hvd.rank())
model = torch.nn.Linear(4, 1)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.05),
    named_parameters=model.named_parameters(),
    backward_passes_per_step=PASSES,
)
true_weight = torch.tensor([[1.0, -2.0, 3.0, 0.5]])
loss = torch.tensor(0.0)
for _ in range(60):
    optimizer.zero_grad()
    for _ in range(PASSES):
        data = torch.randn(8, 4)
        loss = (model(data) - data @ true_weight.T).square().mean() / PASSES
        loss.backward()
    optimizer.step()
assert torch.allclose(model.weight, true_weight, atol=0.05), model.weight
gathered = hvd.allgather(model.weight.detach())
assert torch.equal(gathered[0], gathered[-1])

optimizer.set_backward_passes_per_step(1)
optimizer.zero_grad()
model(torch.ones(1, 4)).sum().backward()
optimizer.step()
