"""Two models in one job: each is trained by the ranks of its own process set."""

import torch

import horovod.torch as hvd

first, last = hvd.ProcessSet([0]), hvd.ProcessSet([1])
hvd.init(process_sets=[first, last])
assert (first.process_set_id, last.process_set_id) == (1, 2)
mine = first if first.included() else last
torch.manual_seed(hvd.rank())
own, shared = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
hvd.broadcast_parameters(shared.state_dict(), root_rank=0)
own_optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(own.parameters(), lr=0.1), named_parameters=own.named_parameters(), process_set=mine
)
foreign = hvd.DistributedOptimizer(
    torch.optim.SGD(shared.parameters(), lr=0.1), named_parameters=shared.named_parameters(), process_set=first
)
own_optimizer.zero_grad()
own(torch.ones(1, 2)).sum().backward()
own_optimizer.step()
foreign.zero_grad()
shared(torch.full((1, 2), float(hvd.rank() + 1))).sum().backward()
gradient = shared.weight.grad.clone()
foreign.step()
# The member reduces over a set of one rank, the other is no member and keeps its own: both are local.
assert torch.equal(shared.weight.grad, gradient)
assert torch.equal(hvd.allreduce(torch.ones(2), op=hvd.Sum, process_set=mine), torch.ones(2))
try:
    hvd.allreduce(torch.ones(2), process_set=last if mine is first else first)
except ValueError:
    pass
else:
    raise AssertionError("an allreduce of a set that this rank is not in")
hvd.barrier()
