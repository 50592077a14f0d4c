"""What happens around training: averaged metrics, gathered predictions, a configuration that rank 0 decides."""

import torch

import horovod.torch as hvd

hvd.init()
rank, size = hvd.rank(), hvd.size()
config = hvd.broadcast_object({"lr": 0.1, "layers": [3, 4], "name": "Ü"} if rank == 0 else None, root_rank=0)
assert config == {"lr": 0.1, "layers": [3, 4], "name": "Ü"}

correct, seen = torch.tensor(10.0 + rank), torch.tensor(20.0)
handles = [hvd.allreduce_async(t, op=hvd.Sum, name=n) for t, n in ((correct, "correct"), (seen, "seen"))]
correct_all, seen_all = (hvd.synchronize(handle) for handle in handles)
assert seen_all.item() == 20.0 * size
assert correct_all.item() == sum(10.0 + r for r in range(size))

predictions = torch.arange(rank + 2) + 100 * rank
gathered = hvd.allgather(predictions, name="predictions")
assert gathered.tolist() == [v for r in range(size) for v in range(100 * r, 100 * r + r + 2)]

reports = hvd.allgather_object({"rank": rank, "worst": ["file"] * rank})
assert [r["rank"] for r in reports] == list(range(size))
assert hvd.allreduce(torch.tensor(float(rank)), op=hvd.Max).item() == size - 1

handle = hvd.allreduce_async(torch.ones(1000), name="polled")
while not hvd.poll(handle):
    pass
assert torch.equal(hvd.synchronize(handle), torch.ones(1000))
with_default = hvd.allreduce(torch.tensor([1, 2]), average=False)
assert with_default.tolist() == [size, 2 * size]
