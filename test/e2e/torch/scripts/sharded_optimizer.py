"""Each rank keeps the optimizer state of its share of the weights: reducescatter of gradients, allgather of weights."""

import torch

import horovod.torch as hvd

hvd.init()
rank, size = hvd.rank(), hvd.size()
torch.manual_seed(0)
weight = torch.randn(8, 3, dtype=torch.float64)
twin = weight.clone().requires_grad_()
twin_optimizer = torch.optim.Adam([twin], lr=0.1)
rows = 8 // size
share = weight[rank * rows : (rank + 1) * rows].clone().requires_grad_()
optimizer = torch.optim.Adam([share], lr=0.1)
for step in range(3):
    parts = [torch.randn(4, 8, generator=torch.Generator().manual_seed(9 * step + r)).double() for r in range(size)]
    full = weight.clone().requires_grad_()
    (parts[rank] @ full).square().mean().backward()
    share.grad = hvd.reducescatter(full.grad, op=hvd.Average, name="gradient")
    optimizer.step()
    weight = hvd.allgather(share.detach(), name="weight")

    twin_optimizer.zero_grad()
    (torch.cat(parts) @ twin).square().mean().backward()
    twin_optimizer.step()
torch.testing.assert_close(weight, twin.detach())
