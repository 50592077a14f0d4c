"""A training script with everything a real one has, on as many ranks as it is started with.

    horovodrun -np 2 python examples/pytorch_training.py --checkpoint /tmp/digits.pt
    horovodrun -np 2 python examples/pytorch_training.py --checkpoint /tmp/digits.pt     # goes on where that ended

A sampler per rank, mixed precision, clipping, a learning rate schedule with warm-up, metrics over all ranks, a
checkpoint that rank 0 writes and that any number of ranks resumes from, early stopping that all ranks agree on, and
one progress bar.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import horovod.torch as hvd

try:
    from tqdm import tqdm
except ImportError:  # training works without a progress bar

    def tqdm(steps: Any, **options: Any) -> Any:
        return steps


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """The digits of scikit-learn; every fifth is for validation."""
    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32) / 16.0
    labels = torch.tensor(digits.target)
    held_out = torch.arange(len(labels)) % 5 == 0
    return TensorDataset(images[~held_out], labels[~held_out]), TensorDataset(images[held_out], labels[held_out])


class Training:
    """The model and the other state of training: the content of a checkpoint."""

    def __init__(self, arguments: argparse.Namespace, steps_per_epoch: int) -> None:
        self.epoch = 0
        self.best_loss = math.inf
        self.epochs_without_progress = 0
        self.clip = arguments.clip
        self.amp_type = getattr(torch, arguments.amp) if arguments.amp != "off" else None
        self.model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 10))
        # A larger batch allows a larger learning rate; with Adam it grows with the square root of the number of ranks.
        inner = torch.optim.AdamW(self.model.parameters(), lr=arguments.lr * math.sqrt(hvd.size()), weight_decay=1e-4)
        self.optimizer = hvd.DistributedOptimizer(inner, named_parameters=self.model.named_parameters())
        warm_up, total = 2 * steps_per_epoch, arguments.epochs * steps_per_epoch
        # The scheduler belongs to the distributed optimizer, which takes the steps.
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: min((step + 1) / warm_up, 0.5 * (1 + math.cos(math.pi * step / total)))
        )

    def state(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch,
            "best_loss": self.best_loss,
            "epochs_without_progress": self.epochs_without_progress,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
        }

    def save(self, path: Path | None) -> None:
        """Rank 0 alone writes, to another name first, so that a crash does not damage the old file."""
        if path is not None and hvd.rank() == 0:
            torch.save(self.state(), path.with_suffix(".new"))
            os.replace(path.with_suffix(".new"), path)

    def resume(self, path: Path | None) -> None:
        """Rank 0 alone reads, so that the file need not be on every host, and broadcasts the state to all ranks."""
        small = None
        if hvd.rank() == 0 and path is not None and path.exists():
            small = torch.load(path, weights_only=True)
            self.model.load_state_dict(small.pop("model"))
            self.optimizer.load_state_dict(small.pop("optimizer"))
            print(f"resuming after epoch {small['epoch']} from {path}", flush=True)
        hvd.broadcast_parameters(self.model.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(self.optimizer, root_rank=0)
        small = hvd.broadcast_object(small, root_rank=0, name="checkpoint")
        if small is not None:
            self.scheduler.load_state_dict(small.pop("scheduler"))
            self.__dict__.update(small)

    def train_step(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=self.amp_type, enabled=self.amp_type is not None):
            loss = functional.cross_entropy(self.model(images), labels)
        loss.backward()
        self.optimizer.synchronize()  # from now on gradients are the reduced ones, and only these may be clipped
        nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        with self.optimizer.skip_synchronize():
            self.optimizer.step()
        self.scheduler.step()
        return loss.detach()

    @torch.no_grad()
    def validate(self, data: TensorDataset) -> tuple[float, float]:
        """Loss and accuracy over all of the data, of which each rank looks at a part; sums, as parts differ in size."""
        self.model.eval()
        images, labels = (tensor[hvd.rank() :: hvd.size()] for tensor in data.tensors)
        outputs = self.model(images)
        loss = functional.cross_entropy(outputs, labels, reduction="sum")
        right = (outputs.argmax(dim=1) == labels).sum()
        sums = hvd.allreduce(
            torch.stack([loss, right, torch.tensor(len(labels))]).double(), op=hvd.Sum, name="validate"
        )
        return (sums[0] / sums[2]).item(), (sums[1] / sums[2]).item()


def train_epoch(training: Training, loader: DataLoader, sampler: DistributedSampler) -> float:
    """One pass over this rank's part; the mean loss over all ranks."""
    sampler.set_epoch(training.epoch)  # another order in every epoch, the same split on all ranks
    training.model.train()
    total = torch.zeros(())
    # One bar for the job: the ranks move in step.
    for images, labels in tqdm(loader, desc=f"epoch {training.epoch + 1}", disable=hvd.rank() != 0, leave=False):
        total += training.train_step(images, labels)
    return hvd.allreduce(total / len(loader), name="train_loss").item()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=12, help="of the whole training, those before a resume included")
    parser.add_argument("--stop-after", type=int, default=None, metavar="EPOCH", help="end early, to be resumed later")
    parser.add_argument("--batch-size", type=int, default=32, help="images per rank and step")
    parser.add_argument("--lr", type=float, default=0.003, help="learning rate for one rank")
    parser.add_argument("--clip", type=float, default=1.0, help="largest norm of the gradients")
    parser.add_argument("--patience", type=int, default=3, help="epochs without progress before training stops")
    parser.add_argument("--amp", choices=["off", "bfloat16"], default="bfloat16", help="type of mixed precision")
    parser.add_argument("--checkpoint", type=Path, default=None, help="file to resume from and to write")
    parser.add_argument("--seed", type=int, default=7)
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed + hvd.rank())  # another dropout on every rank; resume() broadcasts parameters
    train, validation = load_data()
    sampler = DistributedSampler(train, num_replicas=hvd.size(), rank=hvd.rank(), seed=arguments.seed)
    loader = DataLoader(train, batch_size=arguments.batch_size, sampler=sampler)
    training = Training(arguments, len(loader))
    training.resume(arguments.checkpoint)
    while training.epoch < arguments.epochs and training.epochs_without_progress < arguments.patience:
        train_loss = train_epoch(training, loader, sampler)
        loss, accuracy = training.validate(validation)
        training.epoch += 1
        # The loss is the same on all ranks, so they all stop in the same epoch.
        training.epochs_without_progress = 0 if loss < training.best_loss else training.epochs_without_progress + 1
        training.best_loss = min(training.best_loss, loss)
        training.save(arguments.checkpoint)
        if hvd.rank() == 0:
            rate = training.scheduler.get_last_lr()[0]
            print(
                f"epoch {training.epoch}/{arguments.epochs}: train loss {train_loss:.4f}, validation loss {loss:.4f}, "
                f"accuracy {accuracy:.4f}, next lr {rate:.5f}",
                flush=True,
            )
        if training.epoch == arguments.stop_after:
            break
    if hvd.rank() == 0:
        print(f"ended after epoch {training.epoch}: best validation loss {training.best_loss:.4f}", flush=True)
    hvd.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
