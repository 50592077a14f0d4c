"""Gradients sent in half precision, with the built-in compressors and one of the user's own."""

import torch

import horovod.torch as hvd
from horovod.torch.compression import Compressor


class Doubled(Compressor):
    """Sends everything in double precision."""

    @staticmethod
    def compress(tensor):
        return tensor.double(), tensor.dtype

    @staticmethod
    def decompress(tensor, ctx):
        return tensor.to(ctx)


hvd.init()
results = {}
for name, compression in {
    "none": hvd.Compression.none,
    "fp16": hvd.Compression.fp16,
    "bf16": hvd.Compression.bf16,
    "own": Doubled,
}.items():
    torch.manual_seed(0)
    model = torch.nn.Linear(5, 5)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1),
        named_parameters=model.named_parameters(),
        compression=compression,
    )
    for step in range(5):
        torch.manual_seed(step * 10 + hvd.rank())
        optimizer.zero_grad()
        model(torch.randn(4, 5)).square().mean().backward()
        optimizer.step()
    assert model.weight.dtype == torch.float32
    results[name] = model.weight.detach()
assert torch.allclose(results["own"], results["none"], atol=1e-6)
assert torch.allclose(results["fp16"], results["none"], atol=1e-3)
assert torch.allclose(results["bf16"], results["none"], atol=1e-2)
numbers = hvd.allreduce(torch.arange(4), op=hvd.Sum, compression=hvd.Compression.fp16)
assert torch.equal(numbers, torch.arange(4) * hvd.size())
