"""Trains a small network on handwritten digits with Lightning's Trainer, on as many ranks as it is started with.

    horovodrun -np 2 python examples/lightning_digits.py
    python examples/lightning_digits.py                    # one process, no launcher

HorovodStrategy is the only line that is not plain Lightning.
"""

from __future__ import annotations

import argparse
import hashlib
import sys

import pytorch_lightning as pl
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from horovod.torch.lightning import HorovodStrategy

WANTED_ACCURACY = 0.95


class Digits(pl.LightningModule):
    """One hidden layer for images of 8 x 8 pixels."""

    def __init__(self, lr: float) -> None:
        super().__init__()
        self.lr = lr
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        images, labels = batch
        loss = functional.cross_entropy(self.layers(images), labels)
        self.log("train_loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch: list[torch.Tensor], index: int) -> None:
        images, labels = batch
        right = (self.layers(images).argmax(dim=1) == labels).float().mean()
        self.log("accuracy", right, sync_dist=True)  # of all ranks: each looks at a part of the images

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.lr)


class Report(pl.Callback):
    """Prints a line per epoch, on rank 0."""

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.is_global_zero:
            loss, accuracy = (trainer.callback_metrics[name] for name in ("train_loss", "accuracy"))
            epoch = f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}"
            print(f"{epoch}: loss {loss:.4f}, test accuracy {accuracy:.4f}", flush=True)


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """The 1797 digits that come with scikit-learn; a quarter is held out for the test."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32) / 16.0
    labels = torch.tensor(digits.target)
    train, test = train_test_split(range(len(labels)), test_size=0.25, random_state=1, stratify=digits.target)
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32, help="images per rank and step")
    parser.add_argument("--lr", type=float, default=0.005)
    parser.add_argument("--accelerator", default="auto")
    arguments = parser.parse_args()

    train, test = load_data()
    trainer = pl.Trainer(
        strategy=HorovodStrategy(), accelerator=arguments.accelerator, devices=1, max_epochs=arguments.epochs,
        callbacks=[Report()], logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, num_sanity_val_steps=0,
    )  # fmt: skip
    model = Digits(arguments.lr)
    loader = DataLoader(train, arguments.batch_size, shuffle=True)  # Lightning gives each rank its share
    trainer.fit(model, loader, DataLoader(test, arguments.batch_size))

    accuracy = trainer.callback_metrics["accuracy"].item()
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).digest()
    equal = trainer.strategy.broadcast(digest) == digest
    equal = trainer.strategy.reduce_boolean_decision(equal)
    if trainer.is_global_zero:
        said = "bitwise equal parameters" if equal else "DIFFERENT parameters"
        print(f"test accuracy {accuracy:.4f} (wanted {WANTED_ACCURACY}); all {trainer.world_size} ranks hold {said}")
    return 0 if equal and accuracy >= WANTED_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())
