"""A recommender with sparse embeddings, reduced sparse and dense; batches touch different rows on each rank."""

import torch

import horovod.torch as hvd

hvd.init()


def train(sparse_as_dense):
    torch.manual_seed(0)
    items = torch.nn.Embedding(50, 4, sparse=True)
    users = torch.nn.Embedding(20, 4, sparse=True)
    model = torch.nn.ModuleDict({"of_items": items, "of_users": users}).double()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.5),
        named_parameters=model.named_parameters(),
        sparse_as_dense=sparse_as_dense,
    )
    for step in range(6):
        torch.manual_seed(31 * step + hvd.rank())
        user, item = torch.randint(0, 20, (8,)), torch.randint(0, 50, (8,))
        if step == 0 and hvd.rank() == 0:
            item = item[:0]  # nothing bought here today
            user = user[:0]
        optimizer.zero_grad()
        ((users(user) * items(item)).sum(1) - 1).square().sum().backward()
        optimizer.step()
    return torch.cat([items.weight, users.weight]).detach()


sparse, dense = train(False), train(True)
torch.testing.assert_close(sparse, dense, rtol=1e-6, atol=1e-9)
assert all(torch.equal(w, sparse) for w in hvd.allgather(sparse.unsqueeze(0)))
