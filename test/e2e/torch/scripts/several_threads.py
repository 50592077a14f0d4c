"""Collectives from several threads of one process, by name, while the main thread trains."""

import threading

import torch

import horovod.torch as hvd

hvd.init()
torch.set_num_threads(2)
failures = []


def report(number):
    try:
        for step in range(30):
            value = hvd.allreduce(torch.full((8,), float(number + step)), op=hvd.Sum, name=f"thread{number}.{step}")
            assert torch.equal(value, torch.full((8,), float(number + step) * hvd.size()))
    except BaseException as error:
        failures.append(error)


threads = [threading.Thread(target=report, args=(number,)) for number in range(3)]
for thread in threads:
    thread.start()
torch.manual_seed(0)
model = torch.nn.Linear(10, 10)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.01), named_parameters=model.named_parameters()
)
for _ in range(20):
    optimizer.zero_grad()
    model(torch.ones(2, 10)).sum().backward()
    optimizer.step()
    torch.set_num_threads(1 + torch.get_num_threads() % 2)
for thread in threads:
    thread.join()
assert failures == [], failures
