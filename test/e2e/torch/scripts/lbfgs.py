"""A full-batch fit with LBFGS, whose closure runs as often as the line search wants."""

import torch

import horovod.torch as hvd

hvd.init()
torch.manual_seed(hvd.rank())
data = torch.randn(32, 3, dtype=torch.float64)
target = data @ torch.tensor([[2.0], [-1.0], [0.5]], dtype=torch.float64) + 0.25
model = torch.nn.Linear(3, 1).double()
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = hvd.DistributedOptimizer(
    torch.optim.LBFGS(model.parameters(), max_iter=20, line_search_fn="strong_wolfe"),
    named_parameters=model.named_parameters(),
)


def closure():
    optimizer.zero_grad()
    loss = (model(data) - target).square().mean()
    loss.backward()
    return loss


for _ in range(3):
    optimizer.step(closure)
wanted = torch.tensor([[2.0, -1.0, 0.5]], dtype=torch.float64)
assert torch.allclose(model.weight, wanted, atol=1e-4), model.weight
assert abs(model.bias.item() - 0.25) < 1e-4
