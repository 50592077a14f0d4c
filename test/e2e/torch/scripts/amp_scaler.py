"""Mixed precision with autocast and a gradient scaler; one step overflows on one rank, and is skipped on all."""

import torch

import horovod.torch as hvd

hvd.init()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.ReLU(), torch.nn.Linear(12, 1))
optimizer = hvd.DistributedOptimizer(
    torch.optim.Adam(model.parameters(), lr=0.02), named_parameters=model.named_parameters()
)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
first = last = 0.0
for step in range(40):
    torch.manual_seed(10 * step + hvd.rank())
    data = torch.randn(16, 6)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = (model(data) - data.sum(1, keepdim=True)).square().mean()
    overflows = step == 7 and hvd.rank() == hvd.size() - 1
    scaler.scale(loss * float("inf") if overflows else loss).backward()
    optimizer.synchronize()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    with optimizer.skip_synchronize():
        scaler.step(optimizer)
    scaler.update()
    first = first or loss.item()
    last = loss.item()
assert last < first / 2, (first, last)
assert len(set(hvd.allgather_object(model[0].weight.sum().item()))) == 1
assert scaler.get_scale() == 512.0
