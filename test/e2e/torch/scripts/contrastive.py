"""A loss over the embeddings of all ranks: gradients flow through allgather and allreduce."""

import torch
import torch.nn.functional as F

import horovod.torch as hvd

hvd.init()
torch.manual_seed(0)
model = torch.nn.Linear(6, 4).double()
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters()
)
rank, size = hvd.rank(), hvd.size()
data = torch.randn(size, 5, 6, dtype=torch.float64)


def contrast(embeddings):
    scores = embeddings @ embeddings.T
    return F.cross_entropy(scores, torch.arange(len(scores)))


optimizer.zero_grad()
embeddings = hvd.allgather(F.normalize(model(data[rank])), name="embeddings")
loss = contrast(embeddings)
loss.backward()
optimizer.synchronize()

twin = torch.nn.Linear(6, 4).double()
twin.load_state_dict(model.state_dict())
whole = contrast(torch.cat([F.normalize(twin(part)) for part in data]))
whole.backward()
torch.testing.assert_close(loss, whole)
# Allgather's gradient is an average over ranks, and so is the optimizer's.
torch.testing.assert_close(model.weight.grad * size, twin.weight.grad)
with optimizer.skip_synchronize():
    optimizer.step()
