"""A notebook's way: init and shutdown again and again in one process, with a training each time."""

import time

import torch

import horovod.torch as hvd

shortest = float("inf")  # others may be late because the machine is busy
for session in range(25):
    begin = time.monotonic()
    hvd.init()
    assert hvd.is_initialized()
    assert hvd.allreduce(torch.ones(3), op=hvd.Sum).sum().item() == 3 * hvd.size()
    torch.manual_seed(session)
    model = torch.nn.Linear(2, 1)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters()
    )
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    hvd.shutdown()
    assert not hvd.is_initialized()
    shortest = min(shortest, time.monotonic() - begin)
assert shortest < 0.4, shortest
