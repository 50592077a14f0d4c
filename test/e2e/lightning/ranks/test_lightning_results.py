"""What training leaves: checkpoints, logged learning rates; layers that are added later; types shorter than double."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning_world import (
    BATCH,
    DOUBLE,
    HorovodStrategy,
    Regression,
    assert_equal_everywhere,
    horovod,
    own_batches,
    pl,
    plain,
    rows,
)
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import horovod.torch as hvd


def test_learning_rates_are_watched(folder: Path) -> None:
    logger = pl.loggers.CSVLogger(folder)
    monitor = pl.callbacks.LearningRateMonitor()
    model = Regression()
    trainer = horovod(max_epochs=1, logger=logger, callbacks=[monitor], log_every_n_steps=1, **DOUBLE)
    trainer.fit(model, own_batches())
    assert list(monitor.lrs) == ["lr-SGD"]
    assert monitor.lrs["lr-SGD"] == [0.1, 0.1, 0.05, 0.05, 0.025]
    hvd.barrier()
    assert len(list(folder.rglob("metrics.csv"))) == 1


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_checkpoints(folder: Path, optimizer: str) -> None:
    """Two epochs, then two more by another trainer, are four; rank 0 alone writes, and needs no Horovod to read."""
    whole = Regression(optimizer).double()  # Lightning loads before it converts
    first_model = copy.deepcopy(whole)
    horovod(max_epochs=4, accumulate_grad_batches=2, **DOUBLE).fit(whole, own_batches())
    saving = pl.callbacks.ModelCheckpoint(folder / str(hvd.rank()), save_last=True)
    first = horovod(max_epochs=2, accumulate_grad_batches=2, callbacks=[saving], enable_checkpointing=True, **DOUBLE)
    first.fit(first_model, own_batches())
    path = folder / "0" / "last.ckpt"
    assert path.is_file()  # without a barrier of its own
    assert [found.name for found in folder.iterdir()] == ["0"]
    resumed = Regression(optimizer).double()
    horovod(max_epochs=4, accumulate_grad_batches=2, **DOUBLE).fit(resumed, own_batches(), ckpt_path=path)
    for expected, parameter in zip(whole.parameters(), resumed.parameters(), strict=True):
        torch.testing.assert_close(parameter, expected, rtol=1e-9, atol=1e-11)
    assert_equal_everywhere(resumed.parameters())

    data = path.read_bytes()
    assert b"horovod" not in data
    loaded = torch.load(path, weights_only=False)
    assert list(loaded["state_dict"]) == list(whole.state_dict())
    restored = Regression.load_from_checkpoint(path, optimizer=optimizer)
    kind = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[optimizer]
    plain_optimizer = kind(restored.parameters(), lr=1.0)
    plain_optimizer.load_state_dict(loaded["optimizer_states"][0])
    assert len(plain_optimizer.state) == 4  # of two layers that were used
    plain(max_epochs=3, **DOUBLE).fit(restored, own_batches(), ckpt_path=path)


def test_rank_zeros_optimizer_state_is_everyones(folder: Path) -> None:
    trainer, model = horovod(max_epochs=1, **DOUBLE), Regression("adam")
    trainer.fit(model, own_batches())
    path = folder / f"{hvd.rank()}.ckpt"
    state = copy.deepcopy(trainer.optimizers[0].state_dict())
    for values in state["state"].values():
        values["exp_avg"].fill_(float(hvd.rank() + 1))
    trainer.strategy.load_optimizer_state_dict({"optimizer_states": [state]})
    averages = [values["exp_avg"] for values in trainer.optimizers[0].state.values()]
    assert averages
    assert all(bool((average == 1.0).all()) for average in averages)
    trainer.save_checkpoint(path)
    assert path.is_file() == (hvd.rank() == 0)


class Finetuning(pl.callbacks.BaseFinetuning):
    """Trains the first layer from the second epoch on."""

    def freeze_before_training(self, pl_module: Any) -> None:
        self.freeze(pl_module.first)

    def finetune_function(self, pl_module: Any, epoch: int, optimizer: Any) -> None:
        if epoch == 1:
            self.unfreeze_and_add_param_group(pl_module.first, optimizer, lr=0.01)


class OnlyLast(Regression):
    def configure_optimizers(self) -> Any:
        return torch.optim.SGD([p for p in self.parameters() if p.requires_grad], lr=0.1)


def test_layers_that_are_added_later() -> None:
    model = OnlyLast()
    horovod(max_epochs=3, callbacks=[Finetuning()], **DOUBLE).fit(model, own_batches())
    assert_equal_everywhere(model.parameters())


def test_mixed_precision_and_compression_by_name() -> None:
    """bfloat16 on the CPU; a strategy of the registry."""
    model = Regression("adam")
    data = TensorDataset(*(tensor.float() for tensor in rows().tensors))
    trainer = horovod(max_epochs=6, precision="bf16-mixed", strategy="horovod", gradient_clip_val=1.0)
    assert isinstance(trainer.strategy, HorovodStrategy)
    before = nn.functional.mse_loss(model(data.tensors[0]), data.tensors[1]).item()
    trainer.fit(model, DataLoader(data, BATCH))
    compressed = horovod(max_epochs=1, strategy=HorovodStrategy(compression=hvd.Compression.bf16))
    compressed.fit(model, DataLoader(data, BATCH))
    assert_equal_everywhere(model.parameters())
    assert nn.functional.mse_loss(model(data.tensors[0]), data.tensors[1]).item() < before


class Scaled(Regression):
    """Its gradients overflow in the second step, on the last rank only."""

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        loss = super().training_step(batch, index)
        return loss * float("inf") if index == 1 and hvd.rank() == hvd.size() - 1 else loss


@pytest.mark.skipif(not hasattr(torch.amp, "GradScaler"), reason="torch has no scaler for the CPU before 2.3")
def test_a_gradient_scaler_skips_the_same_steps() -> None:
    """The plugin of 16-mixed with a scaler of the CPU: what it does on a GPU but for the type it computes in."""
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    kind = getattr(pl.plugins, "MixedPrecision", None) or pl.plugins.MixedPrecisionPlugin  # 2.0's name
    plugin = kind("16-mixed", "cpu", scaler)
    model = Scaled("sgd").double()
    data = [tensor.float() for tensor in rows().tensors]
    horovod(max_epochs=1, plugins=[plugin], gradient_clip_val=0.5).fit(
        model.float(), DataLoader(TensorDataset(*data), BATCH)
    )
    assert_equal_everywhere(model.parameters())
    assert all(bool(parameter.isfinite().all()) for parameter in model.parameters())
    assert scaler.get_scale() == 4.0
