"""Small models, and trainers that say nothing, for the tests of HorovodStrategy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import horovod.torch as hvd
from horovod.torch.lightning import HorovodStrategy

__all__ = [
    "BATCH",
    "DOUBLE",
    "HorovodStrategy",
    "Regression",
    "all_batches",
    "assert_equal_everywhere",
    "horovod",
    "own_batches",
    "pl",
    "plain",
    "rows",
]

BATCH = 4  # rows of a rank
DOUBLE = {"precision": "64-true"}
QUIET: dict[str, Any] = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "accelerator": "cpu",
    "devices": 1,
}


def horovod(**options: Any) -> Any:
    """A trainer on all ranks."""
    return pl.Trainer(**{**QUIET, "strategy": HorovodStrategy(), **options})


def plain(**options: Any) -> Any:
    """Lightning's own trainer of one process."""
    return pl.Trainer(**{**QUIET, **options})


def rows() -> TensorDataset:
    """The same everywhere, for five batches of all ranks."""
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(5 * BATCH * hvd.size(), 3, generator=generator, dtype=torch.float64)
    return TensorDataset(inputs, inputs.sin().sum(dim=1, keepdim=True))


def all_batches() -> DataLoader[Any]:
    """Batches as large as those of all ranks together."""
    return DataLoader(rows(), batch_size=BATCH * hvd.size())


def own_batches() -> DataLoader[Any]:
    """This rank's parts of all_batches(). Lightning's own sampler would shuffle them."""
    data = rows()
    return DataLoader(data, BATCH, sampler=DistributedSampler(data, hvd.size(), hvd.rank(), shuffle=False))


def assert_equal_everywhere(tensors: Iterable[torch.Tensor]) -> None:
    """That all ranks hold bitwise the same."""
    mine = [tensor.detach().clone() for tensor in tensors]
    for other in hvd.allgather_object(mine):
        assert all(torch.equal(a, b) for a, b in zip(mine, other, strict=True))


class Regression(pl.LightningModule):
    """A function of three numbers. `used_in`: its third layer is used in these batches only."""

    def __init__(self, optimizer: str = "sgd", used_in: range | None = None) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(3, 8), nn.Linear(8, 1), nn.Linear(8, 1)
        self.chosen = optimizer
        self.used_in = used_in
        self.seen: list[Any] = []

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(inputs).tanh())

    def loss_of(self, batch: Any) -> torch.Tensor:
        return (self(batch[0]) - batch[1]).pow(2).mean()

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        loss = self.loss_of(batch)
        if self.used_in is not None and index in self.used_in:
            loss = loss + self.third(self.first(batch[0]).tanh()).pow(2).mean()
        self.log("train_loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def configure_optimizers(self) -> Any:
        if self.chosen == "adam":
            optimizer: Any = torch.optim.Adam(self.parameters(), lr=0.05)
            return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3)]
        if self.chosen == "lbfgs":
            return torch.optim.LBFGS(self.parameters(), lr=0.1, max_iter=4)
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}
