"""A notebook's way: init and shutdown again and again in one process, with a training each time."""

import time

import torch

import horovod.torch as hvd

begin = time.monotonic()
for session in range(25):
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
assert time.monotonic() - begin < 10, time.monotonic() - begin
