"""Trains until the last rank raises or is killed in its third step. The others are to hear of it, and end."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import OnExceptionCheckpoint
from torch.utils.data import DataLoader, TensorDataset

import horovod.torch as hvd
from horovod.torch.lightning import HorovodStrategy


class Failing(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        if index == 2 and hvd.rank() == hvd.size() - 1:
            if sys.argv[1] == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("this rank has had enough")
        return self.layer(batch[0]).pow(2).mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


trainer = pl.Trainer(
    strategy=HorovodStrategy(), default_root_dir=sys.argv[2], accelerator="cpu", devices=1, max_epochs=1000, logger=False,
    enable_progress_bar=False, enable_model_summary=False,
    callbacks=[OnExceptionCheckpoint(sys.argv[2])],  # which must not wait for the others
)  # fmt: skip
try:
    trainer.fit(Failing(), DataLoader(TensorDataset(torch.ones(400, 2)), batch_size=4))
except hvd.HorovodInternalError as error:
    print(f"rank {hvd.rank()} heard: {error}", file=sys.stderr, flush=True)
    raise
