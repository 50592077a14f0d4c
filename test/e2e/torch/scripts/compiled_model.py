"""A compiled model under the wrapped optimizer, and a compiled function with a collective in its middle."""

import torch

import horovod.torch as hvd

hvd.init()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters()
)
twin = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
twin.load_state_dict(model.state_dict())
twin_optimizer = torch.optim.SGD(twin.parameters(), lr=0.1)
compiled = torch.compile(model, backend="aot_eager")
for step in range(4):
    data = [torch.randn(6, 4, generator=torch.Generator().manual_seed(10 * step + r)) for r in range(hvd.size())]
    optimizer.zero_grad()
    compiled(data[hvd.rank()]).square().mean().backward()
    optimizer.step()
    twin_optimizer.zero_grad()
    twin(torch.cat(data)).square().mean().backward()
    twin_optimizer.step()
for own, wanted in zip(model.parameters(), twin.parameters(), strict=True):
    torch.testing.assert_close(own, wanted)


@torch.compile(backend="aot_eager")
def normalised(x):
    total = hvd.allreduce(x.sum(0), op=hvd.Sum, name="total")
    return x / total


x = torch.full((2, 3), float(hvd.rank() + 1))
total = 2.0 * sum(r + 1 for r in range(hvd.size()))
assert torch.allclose(normalised(x), x / total)
