"""What the Trainer does beside training: metrics, data, early stopping, the other loops; wrong arguments."""

from __future__ import annotations

import copy
import pickle
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
from torch.utils.data import DataLoader
from torchmetrics import MeanMetric
from torchmetrics.aggregation import CatMetric

import horovod.torch as hvd


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
    with pytest.raises(ValueError, match=r"use hvd\.SyncBatchNorm"):
        horovod(sync_batchnorm=True, **DOUBLE).fit(Regression(), own_batches())
    with pytest.raises(ValueError, match=r"reduce_op must be one of .*, got 'median'"):
        horovod().strategy.reduce(torch.ones(1), reduce_op="median")
    with pytest.raises(ValueError, match=r"group must be None or a hvd\.ProcessSet, got 'mine'"):
        horovod().strategy.all_gather(torch.ones(1), group="mine")
