"""TorchEstimator on a real Spark: what it trains, what it keeps, what its models predict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pyspark import SparkContext
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.linalg import DenseVector, Vectors
from pyspark.sql import DataFrame, SparkSession

from horovod.spark.common.backend import SparkBackend
from horovod.spark.common.datamodule import ParquetDataModule
from horovod.spark.common.store import Store
from horovod.spark.torch import TorchEstimator, TorchModel
from horovod.torch import Compression

ROWS = 96


@pytest.fixture
def rows(spark: SparkContext) -> DataFrame:
    """y = 2a - b + 3, and a class: whether y is above 3; weights of rows, a column for validation."""
    random = np.random.default_rng(5)
    made = []
    for index in range(ROWS):
        a, b = random.standard_normal(2).tolist()
        y = 2 * a - b + 3
        made.append((Vectors.dense(a, b), [a, b], a, b, y, int(y > 3), float(index % 3), index % 4 == 0))
    names = ["features", "pair", "a", "b", "y", "above", "weight", "held_out"]
    return SparkSession.builder.getOrCreate().createDataFrame(made, names)


def linear(outputs: int = 1, inputs: int = 2) -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Linear(inputs, outputs)


def estimator(store: Store, model: torch.nn.Module, /, **more: Any) -> TorchEstimator:
    arguments: dict[str, Any] = {
        "num_proc": 2,
        "store": store,
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.05),
        "loss": torch.nn.MSELoss(),
        "feature_cols": ["features"],
        "label_cols": ["y"],
        "batch_size": 8,
        "epochs": 4,
        "random_seed": 1,
        "verbose": 0,
    }
    return TorchEstimator(**{**arguments, **more})


def losses(model: TorchModel, part: str = "train") -> list[float]:
    return [epoch[part]["loss"] for epoch in model.getHistory()]


def test_a_line_is_found_and_its_predictions_are_columns(rows: DataFrame, store: Store) -> None:
    mean_error = lambda output, label: (output - label).abs().mean()  # noqa: E731
    trained = estimator(store, linear(), validation="held_out", metrics=[mean_error], epochs=6).fit(rows)
    assert losses(trained)[-1] < 0.05 < losses(trained)[0]
    assert losses(trained, "validation")[-1] < 0.05
    assert [len(epoch["validation"]["all_metrics"]) for epoch in trained.getHistory()] == [1] * 6
    assert trained.getRunId().startswith("pytorch_")
    assert trained.getOptimizer().param_groups[0]["lr"] == pytest.approx(0.05)
    predicted = trained.transform(rows).collect()
    assert predicted[0].asDict().keys() == {*rows.columns, "y__output"}
    weight, bias = trained.getModel().weight.detach().numpy(), trained.getModel().bias.item()
    for row in predicted:
        assert row["y__output"] == pytest.approx(float(weight[0] @ row["features"].toArray()) + bias, abs=1e-5)
    renamed = trained.setOutputCols(["guess"]).transform(rows.select("features"))
    assert renamed.columns == ["features", "guess"]


@pytest.mark.parametrize("passes", [1, 2])
def test_ranks_train_as_one_process_does_with_all_rows_in_a_batch(rows: DataFrame, store: Store, passes: int) -> None:
    """Gradients of several passes are added up, so that they are as many times as large."""
    model = linear().double()
    expected = linear().double()
    single = torch.optim.SGD(expected.parameters(), lr=0.1, momentum=0.5)
    features = torch.tensor(np.array([row["pair"] for row in rows.collect()]))
    labels = torch.tensor([[row["y"]] for row in rows.collect()], dtype=torch.float64)
    for _ in range(3):
        single.zero_grad()
        (passes * torch.nn.functional.mse_loss(expected(features), labels)).backward()
        single.step()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    trained = estimator(store, model, optimizer=optimizer, feature_cols=["pair"], batch_size=ROWS // 2 // passes, epochs=3, backward_passes_per_step=passes).fit(rows)
    torch.testing.assert_close(trained.getModel().weight, expected.weight, rtol=0, atol=1e-12)
    torch.testing.assert_close(trained.getModel().bias, expected.bias, rtol=0, atol=1e-12)
    torch.testing.assert_close(model.weight, linear().double().weight)  # the user's is as it was


def test_classes_several_outputs_and_weights_of_rows(rows: DataFrame, store: Store) -> None:
    class Two(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line, self.sides = torch.nn.Linear(2, 1), torch.nn.Linear(2, 2)

        def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            both = torch.cat([a, b], dim=1)
            return self.line(both), self.sides(both)

    model = Two()
    trained = estimator(
        store,
        model,
        feature_cols=["a", "b"],
        label_cols=["y", "above"],
        input_shapes=[[-1, 1], [-1, 1]],
        loss=[torch.nn.MSELoss(), torch.nn.functional.cross_entropy],
        loss_weights=[0.5, 2.0],
        sample_weight_col="weight",
        metrics=[[], [lambda output, label: (output.argmax(dim=1) == label).float().mean()]],
        epochs=20,
    ).fit(rows)
    assert trained.getHistory()[-1]["train"]["all_metrics"][0] > 0.9
    (first,) = trained.transform(rows.limit(1)).collect()
    assert isinstance(first["y__output"], float)
    assert isinstance(first["above__output"], DenseVector)
    assert first["above__output"].size == 2


def test_a_run_goes_on_from_its_checkpoint(rows: DataFrame, store: Store) -> None:
    model = linear()
    made = estimator(store, model, run_id="mine", optimizer=torch.optim.Adam(model.parameters(), lr=0.05))
    first = losses(made.fit(rows))
    assert store.exists(store.get_checkpoint_path("mine"))
    again = losses(made.fit(rows, {made.epochs: 2}))
    assert len(again) == 2
    assert again[0] < first[-1]


def test_a_run_that_gets_worse_keeps_its_best_state(rows: DataFrame, store: Store) -> None:
    model = linear()
    rates = torch.tensor(0.05)  # of both groups
    groups = [{"params": [model.weight]}, {"params": [model.bias], "lr": np.float64(0.05)}]
    made = estimator(store, model, run_id="mine", optimizer=torch.optim.SGD(groups, lr=rates), validation="held_out")
    best = made.fit(rows)
    assert [float(group["lr"]) for group in best.getOptimizer().param_groups] == pytest.approx([0.05, 0.05])
    kept = store.read(store.get_checkpoint_path("mine"))
    worse = made.fit(rows, {made.label_cols: ["above"], made.epochs: 1})  # other labels
    assert worse.getHistory()[0]["validation"]["loss"] > losses(best, "validation")[-1]
    assert store.read(store.get_checkpoint_path("mine")) == kept
    torch.testing.assert_close(worse.getModel().weight, best.getModel().weight, rtol=0, atol=0)


def test_data_that_another_application_has_written_is_not_trained_with(rows: DataFrame, store: Store) -> None:
    class Intruder(SparkBackend):
        def run(self, *args: Any, **kwargs: Any) -> list[Any]:
            path = store.get_data_metadata_path(store.get_train_data_path(0))
            store.write_text(path, json.dumps({**json.loads(store.read(path)), "token": "another"}))
            return super().run(*args, **kwargs)

    with pytest.raises(RuntimeError, match="rank") as failed:
        estimator(store, linear(), num_proc=None, backend=Intruder(2)).fit(rows)
    assert "was written over by another application" in str(failed.value.__cause__)


def test_data_that_lies_in_the_store_is_trained_with(rows: DataFrame, tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    rows.select("pair", "y").coalesce(1).write.parquet(path)
    store = Store.create(str(tmp_path / "store"), train_path=path, val_path=path)
    made = estimator(store, linear(), feature_cols=["pair"], validation=0.5, inmemory_cache_all=True)
    trained = made.fit_on_parquet()
    assert losses(trained)[-1] < losses(trained)[0]
    assert len(losses(trained, "validation")) == 4
    assert isinstance(trained.transform(rows).first()["y__output"], float)


def test_batches_are_transformed(rows: DataFrame, store: Store) -> None:
    def doubled(frame: Any) -> Any:
        frame["both"] = [[a, b] for a, b in zip(frame["a"], frame["b"], strict=True)]
        frame["y"] = 2 * frame["y"]
        return frame

    def one_step(model: Any, optimizer: Any, transform: Any, loss_fn: Any, inputs: Any, labels: Any, weights: Any) -> Any:
        assert weights is None
        optimizer.zero_grad()
        outputs, labels = transform(model(torch.cat(inputs, dim=1)), labels)
        loss = loss_fn(outputs, labels)
        loss.backward()
        optimizer.step()
        return outputs, loss

    model = linear()
    trained = estimator(
        store,
        model,
        feature_cols=["a", "b"],
        input_shapes=[[-1, 1], [-1, 1]],
        transformation_fn=doubled,
        transformation_removed_fields=["both"],
        train_minibatch_fn=one_step,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.02),
        epochs=15,
        reader_pool_type="dummy",
        loss=None,
        loss_constructors=torch.nn.MSELoss,
    ).fit(rows)
    torch.testing.assert_close(trained.getModel().bias, torch.tensor([6.0]), atol=0.2, rtol=0)


def test_indices_steps_compression_and_a_data_module_of_the_user(rows: DataFrame, store: Store) -> None:
    class Own(ParquetDataModule):  # with the arguments that all have, and no more
        def __init__(self, train_dir: str, val_dir: str | None, num_train_epochs: int, has_val: bool, train_batch_size: int, val_batch_size: int, shuffle: bool, transform_fn: Any, inmemory_cache_all: bool, cur_shard: int, shard_count: int, schema_fields: Any, storage_options: Any, steps_per_epoch_train: int, steps_per_epoch_val: int, verbose: bool) -> None:  # fmt: skip
            super().__init__(train_dir, val_dir, num_train_epochs, has_val, train_batch_size, val_batch_size, shuffle, transform_fn, inmemory_cache_all, cur_shard, shard_count, schema_fields, storage_options, steps_per_epoch_train, steps_per_epoch_val, verbose)  # fmt: skip

        def train_data(self) -> Any:
            for batch in super().train_data():
                yield {**batch, "y": 0 * batch["y"] + 7}

    seen: list[Any] = []

    def look(model: Any, optimizer: Any, transform: Any, loss_fn: Any, inputs: Any, labels: Any, weights: Any) -> Any:
        from horovod.torch import Compression

        assert (inputs[0].dtype, tuple(labels[0].shape), set(labels[0].tolist()[0])) == (torch.int64, (4, 1), {7.0})
        assert optimizer._settings.gradients.compression is Compression.fp16
        seen.append(1)
        assert len(seen) <= 3
        outputs, labels = transform(model(inputs[0].flatten()), labels)
        return outputs, loss_fn(outputs, labels)

    model = torch.nn.Embedding(2, 1)
    trained = estimator(
        store,
        model,
        feature_cols=["above"],
        categorical_cols=["above"],
        label_shapes=[[-1, 1]],
        batch_size=4,
        epochs=1,
        train_steps_per_epoch=3,
        gradient_compression=Compression.fp16,
        train_minibatch_fn=look,
        data_module=Own,
    ).fit(rows)
    values = model.weight.flatten().tolist()
    assert losses(trained)[0] > 1  # labels are 7, and nothing has stepped
    for row in trained.transform(rows.limit(3)).collect():
        assert row["y__output"] == pytest.approx(values[row["above"]])


def test_estimators_and_models_are_written_and_read(rows: DataFrame, store: Store, tmp_path: Path) -> None:
    made = estimator(store, linear())
    made.write().overwrite().save(str(tmp_path / "estimator"))
    read = TorchEstimator.load(str(tmp_path / "estimator"))
    assert (read.getBatchSize(), read.getEpochs(), read.getStore(), read.getBackend()) == (8, 4, None, None)
    assert read.getOptimizer().param_groups[0]["params"][0] is next(iter(read.getModel().parameters()))
    pipeline = Pipeline(stages=[read.setStore(store).setEpochs(1)]).fit(rows)
    pipeline.save(str(tmp_path / "pipeline"))
    loaded = PipelineModel.load(str(tmp_path / "pipeline"))
    before, after = (kind.transform(rows).select("y__output").collect() for kind in (pipeline, loaded))
    assert before == after
    assert loaded.stages[0].getHistory() == pipeline.stages[0].getHistory()


def test_a_rank_that_fails_is_reported(rows: DataFrame, store: Store) -> None:
    def broken(output: Any, label: Any) -> Any:
        raise ArithmeticError("no such loss")

    with pytest.raises(RuntimeError, match="rank") as failed:
        estimator(store, linear(), loss=broken).fit(rows)
    assert "no such loss" in str(failed.value.__cause__)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"model": torch.optim.SGD}, r"model is a type, expected a torch.nn.Module"),
    ({"optimizer": None}, r"optimizer is None, expected one of torch.optim"),
    ({"optimizer": torch.optim.SGD(linear(3).parameters())}, r"2 parameters that the model does not have"),
    ({"loss": None}, r"no loss and no loss_constructors"),
    ({"loss_constructors": [torch.nn.MSELoss]}, r"loss and loss_constructors are both given"),
    ({"loss": [torch.nn.MSELoss()] * 2}, r"2 loss for 1 label_cols"),
    ({"loss_weights": [1.0, 2.0]}, r"2 loss_weights for 1 label_cols"),
    ({"input_shapes": [[-1, 2], [-1]]}, r"2 input_shapes for 1 feature_cols"),
    ({"metrics": [[], []]}, r"2 lists of metrics for 1 label_cols"),
    ({"input_shapes": [[-1, 3]]}, r"column 'features' has 2 elements in each value, expected 3 for the shape \[-1, 3\]"),
    ({"sample_weight_col": "pair"}, r"sample_weight_col 'pair' has 2 elements in each value, expected 1"),
    ({"categorical_cols": ["b"]}, r"categorical_cols \['b'\] are not among feature_cols"),
    ({"metrics": {"y": print}}, r"metrics and loss_weights are lists, got a dictionary"),
    ({"callbacks": [print]}, r"callbacks are of Keras and Lightning"),
    ({"label_cols": []}, r"label_cols is \[\], expected one"),
    ({"store": None}, r"store is None, expected one"),
    ({"feature_cols": ["c"]}, r"column c: not in the DataFrame, which has features, pair,"),
    ({"validation": "where"}, r"validation column where: not in the DataFrame"),
    ({"validation": 1e-9}, r"no rows for validation"),
    ({"backend": SparkBackend}, r"backend and num_proc=2 are both given"),
]


@pytest.mark.parametrize(("wrong", "said"), WRONG, ids=[said[:30] for _, said in WRONG])
def test_what_is_wrong_is_said_before_anything_is_trained(
    rows: DataFrame, store: Store, wrong: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        estimator(store, linear(), **wrong).fit(rows)
