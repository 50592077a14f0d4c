"""The script everybody starts from: sampler, broadcast, wrapped optimizer, averaged metric, output on rank 0."""

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import horovod.torch as hvd

hvd.init()
torch.manual_seed(42)
data = torch.randn(256, 10)
labels = (data[:, 0] + data[:, 1] > 0).long()
dataset = TensorDataset(data, labels)
sampler = DistributedSampler(dataset, num_replicas=hvd.size(), rank=hvd.rank())
loader = DataLoader(dataset, batch_size=16, sampler=sampler)

model = torch.nn.Sequential(torch.nn.Linear(10, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * hvd.size(), momentum=0.5)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
optimizer = hvd.DistributedOptimizer(
    optimizer,
    named_parameters=model.named_parameters(),
    compression=hvd.Compression.none,
    op=hvd.Average,
    gradient_predivide_factor=1.0,
)


def metric_average(value, name):
    return hvd.allreduce(torch.tensor(value), name=name).item()


losses = []
for epoch in range(4):
    model.train()
    sampler.set_epoch(epoch)
    total = 0.0
    for batch, target in loader:
        optimizer.zero_grad()
        loss = F.nll_loss(F.log_softmax(model(batch), dim=1), target)
        loss.backward()
        optimizer.step()
        total += loss.item()
    losses.append(metric_average(total / len(loader), "avg_loss"))
    if hvd.rank() == 0:
        print(f"epoch {epoch}: {losses[-1]:.3f}")

model.eval()
correct = (model(data).argmax(1) == labels).float().mean().item()
assert losses[-1] < losses[0], losses
assert metric_average(correct, "avg_accuracy") > 0.8
weights = torch.cat([p.detach().flatten() for p in model.parameters()])
assert all(torch.equal(w, weights) for w in hvd.allgather(weights.unsqueeze(0)))
