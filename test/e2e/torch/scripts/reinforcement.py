"""Episodes of different lengths: every rank uses other parts of the network, in some steps none at all."""

import torch

import horovod.torch as hvd

hvd.init()
torch.manual_seed(0)
policy = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(4))
optimizer = hvd.DistributedOptimizer(
    torch.optim.Adam(policy.parameters(), lr=0.01), named_parameters=policy.named_parameters()
)
for episode in range(8):
    torch.manual_seed(97 * episode + hvd.rank())
    optimizer.zero_grad()
    length = int(torch.randint(0, 5, ()))
    state = torch.randn(3)
    reward = torch.zeros(())
    for action in torch.randint(0, 4, (length,)).tolist():
        state = torch.tanh(policy[action](state))
        reward = reward + state.sum()
    if length:
        (-reward).backward()
    optimizer.step()
weights = torch.cat([p.detach().flatten() for p in policy.parameters()])
assert all(torch.equal(w, weights) for w in hvd.allgather(weights.unsqueeze(0)))
