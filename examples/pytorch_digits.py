"""Trains a small network on handwritten digits, on as many ranks as it is started with.

    horovodrun -np 2 python examples/pytorch_digits.py
    python examples/pytorch_digits.py                      # one process, no launcher

Every rank trains on its own share of the images; Horovod averages the gradients, so all ranks hold the same network.
"""

from __future__ import annotations

import argparse
import hashlib
import sys

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import horovod.torch as hvd

WANTED_ACCURACY = 0.95


class DigitNet(nn.Module):
    """Two convolutions and two linear layers for images of 8 x 8 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(nn.Linear(32 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(images).flatten(1))


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """The 1797 digits that come with scikit-learn; a quarter is held out for the test."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16.0
    labels = torch.tensor(digits.target)
    train, test = train_test_split(range(len(labels)), test_size=0.25, random_state=1, stratify=digits.target)
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def train_epoch(model: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader) -> float:
    """One pass over this rank's share of the training data; the mean loss over all ranks."""
    model.train()
    total = 0.0
    for images, labels in loader:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return hvd.allreduce(torch.tensor(total / len(loader)), name="train_loss").item()


@torch.no_grad()
def test_accuracy(model: nn.Module, data: TensorDataset) -> float:
    """The share of held-out digits that are recognised; every rank looks at a part of them."""
    model.eval()
    images, labels = (tensor[hvd.rank() :: hvd.size()] for tensor in data.tensors)
    right = (model(images).argmax(dim=1) == labels).sum()
    counts = hvd.allreduce(torch.stack([right, torch.tensor(len(labels))]), name="test_counts", op=hvd.Sum)
    return (counts[0] / counts[1]).item()


def parameters_are_equal(model: nn.Module) -> bool:
    """Whether all ranks hold bitwise the same parameters."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    mine = torch.frombuffer(bytearray(digest.digest()), dtype=torch.uint8)
    everybodys = hvd.allgather(mine.unsqueeze(0), name="parameter_digests")
    return bool((everybodys == mine).all())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32, help="images per rank and step")
    parser.add_argument("--lr", type=float, default=0.005, help="learning rate for one rank")
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()

    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed + hvd.rank())  # the parameters are broadcast below

    train, test = load_data()
    sampler = DistributedSampler(train, num_replicas=hvd.size(), rank=hvd.rank(), seed=arguments.seed)
    loader = DataLoader(train, batch_size=arguments.batch_size, sampler=sampler)

    model = DigitNet()
    # More ranks make a larger batch; the square root keeps Adam stable where a factor of size() would not.
    optimizer = torch.optim.Adam(model.parameters(), lr=arguments.lr * hvd.size() ** 0.5)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    accuracy = 0.0
    for epoch in range(arguments.epochs):
        sampler.set_epoch(epoch)
        loss = train_epoch(model, optimizer, loader)
        accuracy = test_accuracy(model, test)
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}/{arguments.epochs}: loss {loss:.4f}, test accuracy {accuracy:.4f}", flush=True)

    equal = parameters_are_equal(model)
    if hvd.rank() == 0:
        said = "bitwise equal parameters" if equal else "DIFFERENT parameters"
        print(
            f"test accuracy {accuracy:.4f} (wanted {WANTED_ACCURACY}); all {hvd.size()} ranks hold {said}", flush=True
        )
    hvd.shutdown()
    return 0 if equal and accuracy >= WANTED_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())
