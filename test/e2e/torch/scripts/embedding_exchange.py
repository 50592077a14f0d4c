"""Model parallel embeddings: each rank owns a part of the table, rows travel by alltoall and gradients back."""

import torch

import horovod.torch as hvd

hvd.init()
rank, size = hvd.rank(), hvd.size()
ROWS, WIDTH = 6, 3
table = torch.nn.Parameter(torch.arange(ROWS * WIDTH, dtype=torch.float64).view(ROWS, WIDTH) + 100 * rank)
wanted = torch.randint(0, ROWS * size, (10,), generator=torch.Generator().manual_seed(rank))
order = torch.argsort(wanted // ROWS, stable=True)
splits = torch.bincount(wanted // ROWS, minlength=size).int()
asked, asked_splits = hvd.alltoall(wanted[order], splits=splits, name="ask")
rows = table[asked - ROWS * rank]
answers, _ = hvd.alltoall(rows, splits=asked_splits, name="answer")
own = torch.empty_like(answers)
own[order] = answers
expected = torch.stack(
    [torch.arange(WIDTH, dtype=torch.float64) + (w % ROWS) * WIDTH + 100 * (w // ROWS) for w in wanted.tolist()]
)
assert torch.equal(own, expected)
own.sum().backward()
everybodys = torch.cat(
    [torch.randint(0, ROWS * size, (10,), generator=torch.Generator().manual_seed(r)) for r in range(size)]
)
counts = torch.bincount(everybodys, minlength=ROWS * size)[ROWS * rank : ROWS * (rank + 1)]
assert torch.equal(table.grad, counts.double().unsqueeze(1).expand(ROWS, WIDTH))
