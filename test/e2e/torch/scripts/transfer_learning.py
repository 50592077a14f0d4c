"""A frozen body and a new head; later the body is unfrozen with a smaller rate."""

import torch

import horovod.torch as hvd

hvd.init()
torch.manual_seed(0)
body, head = torch.nn.Linear(4, 6), torch.nn.Linear(6, 2)
model = torch.nn.Sequential(body, torch.nn.ReLU(), head)
for parameter in body.parameters():
    parameter.requires_grad_(False)
frozen = body.weight.detach().clone()
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(head.parameters(), lr=0.1, momentum=0.9),
    named_parameters=[("head." + name, p) for name, p in head.named_parameters()],
)


def train(steps):
    for step in range(steps):
        torch.manual_seed(10 * step + hvd.rank())
        optimizer.zero_grad()
        model(torch.randn(5, 4)).square().mean().backward()
        optimizer.step()


train(3)
assert torch.equal(body.weight, frozen)
for parameter in body.parameters():
    parameter.requires_grad_(True)
optimizer.add_param_group({"params": body.parameters(), "lr": 0.01})
train(3)
assert not torch.equal(body.weight, frozen)
weights = torch.cat([p.detach().flatten() for p in model.parameters()])
assert all(torch.equal(w, weights) for w in hvd.allgather(weights.unsqueeze(0)))
