"""Clipping between synchronize() and step(), with the norm of the averaged gradient."""

import warnings

import torch

import horovod.torch as hvd

hvd.init()
torch.manual_seed(3)
model = torch.nn.LSTM(4, 8, batch_first=True)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=1.0), named_parameters=model.named_parameters()
)
warnings.simplefilter("error")
for step in range(5):
    torch.manual_seed(100 * step + hvd.rank())
    optimizer.zero_grad()
    output, _ = model(torch.randn(3, 7, 4) * 50)
    output.square().sum().backward()
    optimizer.synchronize()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    norm = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()
    assert norm <= 0.2501, norm
    norms = hvd.allgather(norm.reshape(1))
    assert torch.equal(norms, norm.expand_as(norms))
    with optimizer.skip_synchronize():
        optimizer.step()
