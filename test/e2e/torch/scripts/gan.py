"""Two networks, two optimizers, and gradients that run through both."""

import torch

import horovod.torch as hvd

hvd.init()
torch.manual_seed(0)
generator = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
critic = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
for net in (generator, critic):
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
g_optimizer = hvd.DistributedOptimizer(
    torch.optim.Adam(generator.parameters(), lr=0.02),
    named_parameters=[("generator." + n, p) for n, p in generator.named_parameters()],
)
c_optimizer = hvd.DistributedOptimizer(
    torch.optim.Adam(critic.parameters(), lr=0.02),
    named_parameters=[("critic." + n, p) for n, p in critic.named_parameters()],
)
loss_of = torch.nn.BCEWithLogitsLoss()
for step in range(60):
    torch.manual_seed(1000 * step + hvd.rank())
    real = torch.randn(32, 1) * 0.5 + 3.0
    fake = generator(torch.randn(32, 2))
    c_optimizer.zero_grad()
    loss = loss_of(critic(real), torch.ones(32, 1)) + loss_of(critic(fake.detach()), torch.zeros(32, 1))
    loss.backward()
    c_optimizer.step()

    for parameter in critic.parameters():
        parameter.requires_grad_(False)
    g_optimizer.zero_grad()
    loss_of(critic(fake), torch.ones(32, 1)).backward()
    g_optimizer.step()
    for parameter in critic.parameters():
        parameter.requires_grad_(True)
sums = [sum(p.sum().item() for p in net.parameters()) for net in (generator, critic)]
assert hvd.allgather_object(sums) == [sums] * hvd.size()
assert generator(torch.zeros(1, 2)).item() > 0.5
