"""Ranks with different amounts of data: who has finished joins, the others go on."""

import torch

import horovod.torch as hvd

hvd.init()
torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.05), named_parameters=model.named_parameters()
)
steps = 0
for epoch in range(2):
    for batch in range(3 + 2 * hvd.rank()):
        torch.manual_seed(100 * epoch + 10 * batch + hvd.rank())
        optimizer.zero_grad()
        model(torch.randn(4, 3)).square().mean().backward()
        optimizer.step()
        steps += 1
    last = hvd.join()
    assert last == hvd.size() - 1, last
assert steps == 2 * (3 + 2 * hvd.rank())
# Those that joined have not made the others' last steps; a broadcast brings them up to date.
hvd.broadcast_parameters(model.state_dict(), root_rank=last)
weights = hvd.allgather(model.weight.detach())
assert torch.equal(weights[0], weights[-1])
