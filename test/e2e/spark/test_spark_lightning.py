"""Lightning's estimator on a real Spark: modules of Lightning, and plain ones of PyTorch by its Trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from horovod.spark.common.store import Store
from horovod.spark.lightning import TorchEstimator, TorchModel

ROWS = 96


@pytest.fixture
def rows(spark: SparkContext) -> DataFrame:
    """y = 2a - b + 3."""
    pairs = np.random.default_rng(5).standard_normal((ROWS, 2)).tolist()
    made = [([a, b], 2 * a - b + 3, index % 4 == 0) for index, (a, b) in enumerate(pairs)]
    return SparkSession.builder.getOrCreate().createDataFrame(made, ["pair", "y", "held_out"])


def line(rate: float = 0.05) -> pl.LightningModule:
    class Line(pl.LightningModule):  # local, so that it travels to ranks
        def __init__(self) -> None:
            super().__init__()
            self.save_hyperparameters({"kind": torch.optim.SGD})  # what torch.load() refuses by itself
            self.line = torch.nn.Linear(2, 1)

        def forward(self, pair: torch.Tensor) -> torch.Tensor:
            return self.line(pair)

        def loss(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
            return torch.nn.functional.mse_loss(self(batch["pair"]).flatten(), batch["y"])

        def training_step(self, batch: dict[str, torch.Tensor], index: int) -> torch.Tensor:
            loss = self.loss(batch)
            self.log("train_loss", loss, on_step=False, on_epoch=True, sync_dist=True)
            return loss

        def validation_step(self, batch: dict[str, torch.Tensor], index: int) -> None:
            self.log("val_loss", self.loss(batch), sync_dist=True)

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), lr=rate, momentum=0.5)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 100)]

    torch.manual_seed(3)
    return Line()


def estimator(store: Store, model: Any, /, **more: Any) -> TorchEstimator:
    arguments: dict[str, Any] = {
        "num_proc": 2,
        "store": store,
        "model": model,
        "feature_cols": ["pair"],
        "label_cols": ["y"],
        "batch_size": 8,
        "epochs": 4,
        "random_seed": 1,
        "verbose": 0,
    }
    return TorchEstimator(**{**arguments, **more})


def test_a_module_is_trained_and_its_best_state_is_kept(rows: DataFrame, store: Store) -> None:
    best = pl.callbacks.ModelCheckpoint(monitor="val_loss")
    made = estimator(
        store,
        line(),
        run_id="mine",
        validation="held_out",
        callbacks=[best],
        train_async_data_loader_queue_size=2,
        trainer_args={"gradient_clip_val": 100.0},
        epochs=8,
    )
    trained = made.fit(rows)
    history = trained.getHistory()
    assert [epoch["epoch"] for epoch in history] == list(range(8))
    assert history[-1]["train_loss"] < 0.1 < history[0]["train_loss"]
    assert history[-1]["val_loss"] < 0.1
    weight = trained.getModel().line.weight.detach().numpy()[0]
    for row in trained.transform(rows).collect():
        expected = float(weight @ row["pair"]) + trained.getModel().line.bias.item()
        assert row["y__output"] == pytest.approx(expected, abs=1e-5)
    again = made.fit(rows, {made.epochs: 2, made.callbacks: []}).getHistory()
    assert [epoch["epoch"] for epoch in again] == [8, 9]
    assert again[0]["train_loss"] < history[0]["train_loss"] / 10


def test_ranks_train_as_one_process_does_with_all_rows_in_a_batch(rows: DataFrame, store: Store) -> None:
    expected = line().double()
    single = torch.optim.SGD(expected.parameters(), lr=0.1, momentum=0.5)
    features = torch.tensor(np.array([row["pair"] for row in rows.collect()]))
    labels = torch.tensor([row["y"] for row in rows.collect()], dtype=torch.float64)
    for _ in range(3):
        single.zero_grad()
        expected.loss({"pair": features, "y": labels}).backward()
        single.step()
    trained = estimator(store, line().double(), batch_size=ROWS // 2, epochs=3).fit(rows)
    torch.testing.assert_close(trained.getModel().line.weight, expected.line.weight, rtol=0, atol=1e-12)


def test_a_plain_module_is_trained_by_the_trainer(rows: DataFrame, store: Store, tmp_path: Path) -> None:
    torch.manual_seed(3)
    model = torch.nn.Linear(2, 1)
    mean_error = lambda output, label: (output - label).abs().mean()  # noqa: E731
    trained = estimator(
        store,
        model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.05),
        loss=torch.nn.MSELoss(),
        metrics=[mean_error],
        validation="held_out",
        epochs=6,
    ).fit(rows)
    last = trained.getHistory()[-1]
    assert last["train_loss"] < 0.1
    assert last["val_loss"] < 0.1
    assert last["val_lambda_y"] < 0.3
    trained.save(str(tmp_path / "model"))
    loaded = TorchModel.load(str(tmp_path / "model"))
    before, after = (kind.transform(rows).select("y__output").collect() for kind in (trained, loaded))
    assert before == after


def test_classes_of_whole_numbers_are_learned_by_a_plain_module(rows: DataFrame, store: Store) -> None:
    model = torch.nn.Linear(2, 2)
    trained = estimator(
        store,
        model,
        optimizer=torch.optim.Adam(model.parameters(), lr=0.05),
        loss=torch.nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0])),
        label_cols=["above"],
        epochs=3,
        train_async_data_loader_queue_size=3,
        trainer_args={"limit_train_batches": 3},
    ).fit(rows.selectExpr("pair", "cast(y > 3 as int) as above"))
    losses = [epoch["train_loss"] for epoch in trained.getHistory()]
    assert losses[-1] < losses[0]


def test_schedules_are_scaled_as_rates_are() -> None:
    from horovod.spark.lightning import _strategy

    def rates(scale: int) -> list[float]:
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
        schedules = torch.optim.lr_scheduler
        inner = [schedules.LambdaLR(optimizer, lambda step: 1 / (1 + step)), schedules.StepLR(optimizer, 2)]
        made = schedules.SequentialLR(optimizer, inner, [3])
        for group in optimizer.param_groups:
            group["lr"] *= scale
        _strategy.scale_schedule(made, scale)
        seen = []
        for _ in range(8):
            seen.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            made.step()
        return seen

    assert rates(4) == pytest.approx([4 * rate for rate in rates(1)])


def test_a_loss_that_is_not_finite_ends_the_job_if_it_is_to(rows: DataFrame, store: Store) -> None:
    with pytest.raises(RuntimeError, match="rank") as failed:
        estimator(store, line(rate=1e30), terminate_on_nan=True).fit(rows)
    assert "terminate_on_nan: the loss of batch" in str(failed.value.__cause__)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"optimizer": "adam"}, r"optimizer is given, but a LightningModule has its own"),
    ({"loss": torch.nn.MSELoss()}, r"loss is given, but a LightningModule has its own"),
    ({"loss_weights": [1.0]}, r"loss_weights is given, but a LightningModule has its own"),
    ({"num_gpus": 2}, r"num_gpus=2, expected 0 or 1"),
    ({"train_minibatch_fn": print}, r"train_minibatch_fn is of horovod.spark.torch"),
    ({"model": torch.nn.Linear(2, 1)}, r"optimizer is None, expected one of torch.optim"),
]


@pytest.mark.parametrize(("wrong", "said"), WRONG, ids=[said[:30] for _, said in WRONG])
def test_what_is_wrong_is_said_before_anything_is_trained(
    rows: DataFrame, store: Store, wrong: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        estimator(store, line(), **wrong).fit(rows)
