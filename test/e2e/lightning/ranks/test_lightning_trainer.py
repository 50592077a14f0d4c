"""What the Trainer does beside training: metrics, data, checkpoints, early stopping, the other loops, wrong arguments."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning_world import (
    BATCH,
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
from torchmetrics import MeanMetric
from torchmetrics.aggregation import CatMetric

import horovod.torch as hvd

DOUBLE = {"precision": "64-true"}


class Watched(Regression):
    """Logs what it knows of itself, under all reductions."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.mean, self.rows_seen = MeanMetric(), CatMetric()
        nn.init.normal_(self.norm.running_mean)  # another on each rank
        self.register_buffer("unsaved", torch.randn(2), persistent=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(self.norm(inputs))

    def on_train_start(self) -> None:
        assert_equal_everywhere([*self.parameters(), *self.buffers()])

    def on_after_backward(self) -> None:
        assert_equal_everywhere(parameter.grad for parameter in self.parameters() if parameter.grad is not None)

    def validation_step(self, batch: Any, index: int) -> None:
        rank = float(self.global_rank)
        for fx in ("mean", "sum", "min", "max"):
            self.log(fx, rank, reduce_fx=fx, sync_dist=True, on_step=False, on_epoch=True)
        self.log("own", rank)
        self.mean.update(batch[0])
        self.rows_seen.update(batch[0][: 1 + hvd.rank()])
        self.log("metric", self.mean)

    def test_step(self, batch: Any, index: int) -> None:
        self.log("test_loss", self.loss_of(batch), sync_dist=True)

    def predict_step(self, batch: Any, index: int) -> torch.Tensor:
        return self(batch[0])


def loader(shuffle: bool = False) -> DataLoader[Any]:
    """Lightning gives each rank its share of these."""
    return DataLoader(rows(), batch_size=BATCH, shuffle=shuffle)


def test_the_ranks_numbers_data_and_start() -> None:
    trainer, model = horovod(max_epochs=1, **DOUBLE), Watched()
    assert trainer.world_size == hvd.size()
    assert (trainer.global_rank, trainer.local_rank) == (hvd.rank(), hvd.local_rank())
    assert trainer.is_global_zero == (hvd.rank() == 0)
    trainer.fit(model, loader(shuffle=True), loader())
    if hvd.size() > 1:
        for loaded in (trainer.train_dataloader, trainer.val_dataloaders):
            assert (loaded.sampler.num_replicas, loaded.sampler.rank) == (hvd.size(), hvd.rank())
    assert trainer.num_training_batches == 5
    assert_equal_everywhere(model.parameters())


def test_metrics() -> None:
    trainer, model = horovod(**DOUBLE), Watched()
    logged = trainer.validate(model, loader(), verbose=False)[0]
    ranks = [float(rank) for rank in range(hvd.size())]
    assert logged["mean"] == sum(ranks) / len(ranks)
    assert logged["sum"] == 5 * sum(ranks)
    assert (logged["min"], logged["max"]) == (min(ranks), max(ranks))
    assert logged["own"] == hvd.rank()
    torch.testing.assert_close(logged["metric"], rows().tensors[0].mean().item())
    assert len(model.rows_seen.compute()) == 5 * sum(1 + rank for rank in range(hvd.size()))
    pickle.dumps(copy.deepcopy(model.mean))


def test_the_other_loops() -> None:
    trainer, model = horovod(**DOUBLE), Watched()
    tested = trainer.test(model, loader(), verbose=False)[0]["test_loss"]
    assert hvd.allgather_object(tested) == [tested] * hvd.size()
    predicted = torch.cat(trainer.predict(model, loader()))
    alone = torch.cat(plain(**DOUBLE).predict(model, DataLoader(rows(), batch_size=BATCH)))
    torch.testing.assert_close(predicted, alone[hvd.rank() :: hvd.size()])


def test_collectives() -> None:
    strategy = horovod().strategy
    ranks = torch.arange(hvd.size())
    mine = torch.tensor([hvd.rank()])
    for op, expected in ((None, ranks.float().mean()), ("avg", ranks.float().mean()), ("SUM", ranks.sum())):
        assert strategy.reduce(mine, reduce_op=op).item() == expected.item()
    assert strategy.reduce(mine, reduce_op=torch.distributed.ReduceOp.MAX).item() == hvd.size() - 1
    assert strategy.reduce("as it is") == "as it is"
    assert mine.item() == hvd.rank()
    assert strategy.broadcast(["of", hvd.rank()], hvd.size() - 1) == ["of", hvd.size() - 1]
    assert strategy.reduce_boolean_decision(hvd.rank() == 0) == (hvd.size() == 1)
    assert strategy.reduce_boolean_decision(hvd.rank() == 0, all=False)
    strategy.barrier("named")
    weight = torch.full((2, 3), 1.0 + hvd.rank(), requires_grad=True)
    gathered = strategy.all_gather(weight * 2, sync_grads=True)
    assert gathered.shape == (hvd.size(), 2, 3)
    (gathered * (1 + hvd.rank())).sum().backward()
    assert weight.grad is not None
    assert torch.equal(weight.grad, torch.full((2, 3), 2.0 * (ranks + 1).sum()))  # the sum over the ranks' losses
    assert not strategy.all_gather(weight).requires_grad
    assert strategy.all_gather(torch.tensor(hvd.rank())).tolist() == ranks.tolist()


class Stopping(Regression):
    """Gets worse on the last rank only."""

    def validation_step(self, batch: Any, index: int) -> None:
        worse = self.current_epoch if hvd.rank() == hvd.size() - 1 else -self.current_epoch
        self.log("worse", float(worse))


def test_ranks_stop_together() -> None:
    stopping = pl.callbacks.EarlyStopping("worse", patience=2)
    trainer = horovod(max_epochs=8, callbacks=[stopping], **DOUBLE)
    trainer.fit(Stopping(), own_batches(), own_batches())
    assert trainer.current_epoch == 3
    assert hvd.allgather_object(trainer.global_step) == [15] * hvd.size()


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
    saving = pl.callbacks.ModelCheckpoint(folder / str(hvd.rank()), filename="last", save_last=True)
    first = horovod(
        max_epochs=2, accumulate_grad_batches=2, callbacks=[saving], enable_checkpointing=True, **DOUBLE
    )
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
    plugin = pl.plugins.MixedPrecision("16-mixed", "cpu", scaler)
    model = Scaled("sgd").double()
    data = [tensor.float() for tensor in rows().tensors]
    horovod(max_epochs=1, plugins=[plugin], gradient_clip_val=0.5).fit(
        model.float(), DataLoader(TensorDataset(*data), BATCH)
    )
    assert_equal_everywhere(model.parameters())
    assert all(bool(parameter.isfinite().all()) for parameter in model.parameters())
    assert scaler.get_scale() == 4.0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"compression": "fp16"}, "compression must be .*, got 'fp16'"),
        ({"op": hvd.Adasum}, "op=hvd.Adasum steps during backward"),
        ({"op": "mean"}, "op must be .*, got 'mean'"),
        ({"groups": 0}, "groups must be None or an int > 0, got 0"),
        ({"groups": [[]]}, r"groups must be None or an int > 0, got \[\[\]\]"),
    ],
)
def test_wrong_options(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HorovodStrategy(**wrong)


def test_wrong_trainers() -> None:
    with pytest.raises(ValueError, match=rf"devices=7\): this host has {hvd.local_size()} process"):
        horovod(devices=7)
    assert horovod(devices=hvd.local_size(), num_nodes=1).world_size == hvd.size()
    with pytest.raises(ValueError, match=r"num_nodes=3\): the job runs on 1"):
        horovod(num_nodes=3)
    with pytest.raises(ValueError, match="use hvd.SyncBatchNorm"):
        horovod(sync_batchnorm=True, **DOUBLE).fit(Regression(), own_batches())
    with pytest.raises(ValueError, match="reduce_op must be one of .*, got 'median'"):
        horovod().strategy.reduce(torch.ones(1), reduce_op="median")
    with pytest.raises(ValueError, match="group must be None or a hvd.ProcessSet, got 'mine'"):
        horovod().strategy.all_gather(torch.ones(1), group="mine")
