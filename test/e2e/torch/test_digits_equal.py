"""Two ranks train the digits as one process with the doubled batch does: the same parameters to 1e-5."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

# The network and the data of the example. One process takes the two ranks' batches together.
PROGRAM = """
import runpy, sys, torch
from torch.nn import functional
import horovod.torch as hvd

example = runpy.run_path(sys.argv[1], run_name="example")
EPOCHS, BATCH, RANKS = 20, 32, 2
hvd.init()
torch.set_num_threads(1)
images, labels = example["load_data"]()[0].tensors
# Double precision: in single precision 420 steps of momentum amplify the last digit to as much as a hundredth.
images = images.double()


def train(model, optimizer, parts):
    for epoch in range(EPOCHS):
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(epoch))
        steps = len(labels) // (RANKS * BATCH)
        for batch in order[: steps * RANKS * BATCH].view(steps, RANKS, BATCH):
            rows = batch[parts].reshape(-1)
            optimizer.zero_grad()
            functional.cross_entropy(model(images[rows]), labels[rows]).backward()
            optimizer.step()


def build():
    torch.manual_seed(7)
    model = example["DigitNet"]().double()
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


model, optimizer = build()
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
train(model, optimizer, [hvd.rank()])
weights = torch.cat([p.detach().flatten() for p in model.parameters()])
if hvd.rank() == 0:
    twin, twin_optimizer = build()
    begin = torch.cat([p.detach().flatten() for p in twin.parameters()])
    train(twin, twin_optimizer, [0, 1])
    wanted = torch.cat([p.detach().flatten() for p in twin.parameters()])
    print("largest difference", (weights - wanted).abs().max().item(), "moved", (wanted - begin).abs().max().item())
hvd.barrier()
"""


@pytest.mark.slow
def test_two_ranks_equal_one_process_with_the_doubled_batch(horovodrun: Any, tmp_path: Path) -> None:
    script = tmp_path / "digits.py"
    script.write_text(PROGRAM)
    example = Path(__file__).resolve().parents[3] / "examples" / "pytorch_digits.py"
    job = horovodrun(2, str(script), str(example))
    assert job.code == 0, job.text
    words = job.out.split()
    assert float(words[words.index("difference") + 1]) < 1e-5, job.out
    assert float(words[words.index("moved") + 1]) > 0.1, job.out
