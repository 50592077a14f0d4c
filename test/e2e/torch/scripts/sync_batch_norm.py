"""A small convolutional network whose BatchNorm layers are replaced by synchronised ones."""

import torch

import horovod.torch as hvd


def convert(module):
    """What users write to replace the layers of a finished model."""
    if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
        synced = hvd.SyncBatchNorm(
            module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats
        )
        synced.load_state_dict(module.state_dict())
        return synced
    for name, child in module.named_children():
        setattr(module, name, convert(child))
    return module


hvd.init()
torch.manual_seed(0)
model = convert(
    torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(4 * 36, 2),
        torch.nn.BatchNorm1d(2),
    )
)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.05), named_parameters=model.named_parameters()
)
for step in range(5):
    torch.manual_seed(step * 10 + hvd.rank())
    optimizer.zero_grad()
    model(torch.randn(2 + hvd.rank(), 1, 8, 8)).square().mean().backward()
    optimizer.step()
for name, value in model.state_dict().items():
    everybodys = hvd.allgather(value.reshape(1, -1))
    assert torch.equal(everybodys[0], everybodys[-1]), name
assert model[1].num_batches_tracked == 5
model.eval()
if hvd.rank() == 0:
    model(torch.randn(1, 1, 8, 8))
