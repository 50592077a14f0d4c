"""Local steps, and an average of the parameters every few of them: collectives in place, without an optimizer of ours."""

import torch

import horovod.torch as hvd

hvd.init()
torch.manual_seed(hvd.rank())
model = torch.nn.Linear(3, 1)
hvd.broadcast_parameters(model.state_dict(), root_rank=hvd.size() - 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
true_weight = torch.tensor([[1.0], [2.0], [-1.0]])
for step in range(120):
    optimizer.zero_grad()
    data = torch.randn(8, 3)
    (model(data) - data @ true_weight).square().mean().backward()
    optimizer.step()
    if step % 5 == 4:
        with torch.no_grad():
            handles = [
                hvd.allreduce_async_(p, op=hvd.Average, name=f"average.{n}") for n, p in model.named_parameters()
            ]
            for handle in handles:
                hvd.synchronize(handle)
assert torch.allclose(model.weight.T, true_weight, atol=0.05), model.weight
gathered = hvd.allgather(model.weight.detach())
assert torch.equal(gathered[0], gathered[-1])
before = [p.detach().clone() for p in model.parameters()]
averaged = hvd.grouped_allreduce(before, name="group")
assert all(torch.allclose(a, b) for a, b in zip(averaged, before, strict=True))
