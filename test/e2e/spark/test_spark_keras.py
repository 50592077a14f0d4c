"""KerasEstimator on a real Spark: what it trains, what it keeps, what its models predict."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
import pytest
from pyspark import SparkContext
from pyspark.ml.linalg import SparseVector, Vectors
from pyspark.sql import DataFrame, SparkSession

from horovod.spark.common.store import Store
from horovod.spark.keras import KerasEstimator, KerasModel

ROWS = 96


@pytest.fixture
def rows(spark: SparkContext) -> DataFrame:
    """y = 2a - b + 3; the class of its sign, as a number and as a vector; sparse features."""
    random = np.random.default_rng(5)
    made = []
    for index in range(ROWS):
        a, b = random.standard_normal(2).tolist()
        y = 2 * a - b + 3
        sparse = SparseVector(6, [1, 4] if index % 2 else [1, 3, 4], [a, b] if index % 2 else [a, 0.0, b])
        one_hot = Vectors.dense(1.0, 0.0) if y > 3 else Vectors.dense(0.0, 1.0)
        made.append((Vectors.dense(a, b), sparse, a, b, y, int(y <= 3), one_hot, float(index % 3), index % 4 == 0))
    names = ["features", "sparse", "a", "b", "y", "class", "one_hot", "weight", "held_out"]
    return SparkSession.builder.getOrCreate().createDataFrame(made, names)


def linear(inputs: int = 2) -> Any:
    keras.utils.set_random_seed(3)
    return keras.Sequential([keras.layers.Input((inputs,)), keras.layers.Dense(1)])


def estimator(store: Store, model: Any, /, **more: Any) -> KerasEstimator:
    arguments: dict[str, Any] = {
        "num_proc": 2,
        "store": store,
        "model": model,
        "optimizer": keras.optimizers.SGD(0.05),
        "loss": "mse",
        "feature_cols": ["features"],
        "label_cols": ["y"],
        "batch_size": 8,
        "epochs": 6,
        "random_seed": 1,
        "verbose": 0,
    }
    return KerasEstimator(**{**arguments, **more})


def test_a_line_is_found_and_its_predictions_are_columns(rows: DataFrame, store: Store) -> None:
    seen: list[float] = []

    class Notes(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            seen.append(float(self.model.optimizer.learning_rate))
            logs["rate"] = seen[-1]

    class TensorBoard(keras.callbacks.Callback):  # type: ignore[misc]  # Keras' own needs a package that is not here
        log_dir = ""

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            assert os.environ["HOROVOD_RANK"] == "0"
            assert "rate" in logs  # it is behind the others
            Path(self.log_dir).mkdir(exist_ok=True)
            (Path(self.log_dir) / "events").write_text(str(epoch))

    trained = estimator(store, linear(), validation="held_out", metrics=["mae"], callbacks=[TensorBoard(), Notes()], run_id="mine").fit(rows)
    history = trained.getHistory()
    assert history.keys() >= {"loss", "mae", "val_loss", "val_mae", "rate"}
    assert history["loss"][-1] < 0.05 < history["loss"][0]
    assert history["val_loss"][-1] < 0.05
    assert history["rate"] == pytest.approx([0.1] * 6)
    assert float(trained.getModel().optimizer.learning_rate) == pytest.approx(0.05)
    assert trained.getRunId() == "mine"
    assert store.read(store.get_logs_path("mine") + "/events") == b"5"
    kernel, bias = trained.getModel().get_weights()
    for row in trained.setOutputCols(["guess"]).transform(rows).collect():
        expected = float(row["features"].toArray() @ kernel[:, 0] + bias[0])
        assert row["guess"] == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_a_validation_sees_each_row_once_in_each_epoch(rows: DataFrame, store: Store) -> None:
    model = linear()
    made = estimator(store, model, optimizer=keras.optimizers.SGD(0.0), validation="held_out", val_batch_size=5)
    held = rows.where("held_out").collect()
    kernel, bias = model.get_weights()
    errors = [(float(row["features"].toArray() @ kernel[:, 0] + bias[0]) - row["y"]) ** 2 for row in held]
    assert made.fit(rows).getHistory()["val_loss"] == pytest.approx([np.mean(errors)] * 6, rel=1e-5)


def test_ranks_train_as_one_process_does_with_all_rows_in_a_batch(rows: DataFrame, store: Store) -> None:
    expected = linear()
    expected.compile(optimizer=keras.optimizers.SGD(0.1, momentum=0.5), loss="mse")
    features = np.array([row["features"].toArray() for row in rows.collect()])
    labels = np.array([[row["y"]] for row in rows.collect()])
    expected.fit(features, labels, batch_size=ROWS, epochs=3, shuffle=False, verbose=0)
    optimizer = keras.optimizers.SGD(0.05, momentum=0.5)
    trained = estimator(store, linear(), optimizer=optimizer, batch_size=ROWS // 2, epochs=3).fit(rows)
    for ours, theirs in zip(trained.getModel().get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_classes_sparse_vectors_several_outputs_and_weights(rows: DataFrame, store: Store) -> None:
    sparse, a = keras.layers.Input((6,)), keras.layers.Input((1,))
    both = keras.layers.Concatenate()([sparse, a])
    outputs = [keras.layers.Dense(2, activation="softmax")(both), keras.layers.Dense(2, activation="softmax")(both)]
    trained = estimator(
        store,
        keras.Model([sparse, a], outputs),
        optimizer="adam",
        loss=["sparse_categorical_crossentropy", keras.losses.CategoricalCrossentropy()],
        loss_weights=[1.0, 0.5],
        feature_cols=["sparse", "a"],
        label_cols=["class", "one_hot"],
        compress_sparse_cols=True,
        sample_weight_col="weight",
        tensorflow_dataset_prefetch_buffer_size=3,
        epochs=3,
    ).fit(rows)
    losses = trained.getHistory()["loss"]
    assert losses[-1] < losses[0]
    (first,) = trained.transform(rows.limit(1)).collect()
    assert first["class__output"].size == first["one_hot__output"].size == 2
    assert sum(first["one_hot__output"]) == pytest.approx(1)


def test_a_run_goes_on_from_its_checkpoint(rows: DataFrame, store: Store) -> None:
    from horovod.keras.callbacks import BestModelCheckpoint

    made = estimator(store, linear(), run_id="mine", optimizer=keras.optimizers.Adam(0.05), validation="held_out")
    made.setCheckpointCallback(BestModelCheckpoint(monitor="val_loss"))
    first = made.fit(rows)
    path = store.get_checkpoint_path("mine")
    assert store.exists(path)
    weights = store.read_serialized_keras_model(path, None, None).get_weights()
    np.testing.assert_array_equal(weights[0], first.getModel().get_weights()[0])
    again = made.fit(rows, {made.epochs: 2}).getHistory()["loss"]
    assert len(again) == 2
    assert again[0] < first.getHistory()["loss"][-1]


def test_models_are_written_and_read(rows: DataFrame, store: Store, tmp_path: Path) -> None:
    @keras.saving.register_keras_serializable("test")
    def halved(value: Any) -> Any:
        return value / 2

    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1, activation=halved)])
    made = estimator(store, model, custom_objects={"test>halved": halved}, epochs=1)
    made.save(str(tmp_path / "estimator"))
    trained = KerasEstimator.load(str(tmp_path / "estimator")).setStore(store).fit(rows)
    trained.save(str(tmp_path / "model"))
    loaded = KerasModel.load(str(tmp_path / "model"))
    before, after = (kind.transform(rows).select("y__output").collect() for kind in (trained, loaded))
    assert before == after


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"model": 3}, r"model is a int, expected a keras.Model"),
    ({"model": keras.Sequential([keras.layers.Dense(1)])}, r"no inputs yet, expected one that is built"),
    ({"optimizer": None}, r"no optimizer, expected one"),
    ({"features_are_3": True}, r"column 'features' has 2 elements in each value, expected 3"),
    ({"optimizer": keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.1, 1, 1))}, r"is a ExponentialDecay, expected a number"),
    ({"metrics": "mse"}, r"metrics: 'mse', expected a list or a dictionary"),
    ({"loss": None}, r"no loss, expected one"),
    ({"feature_cols": ["a", "b"]}, r"the model has 1 inputs for 2 columns"),
    ({"label_cols": ["y", "class"]}, r"the model has 1 outputs for 2 columns"),
]


@pytest.mark.parametrize(("wrong", "said"), WRONG, ids=[said[:30] for _, said in WRONG])
def test_what_is_wrong_is_said_before_anything_is_trained(
    rows: DataFrame, store: Store, wrong: dict[str, Any], said: str
) -> None:
    model = linear(3 if wrong.pop("features_are_3", False) else 2)
    with pytest.raises(ValueError, match=said):
        estimator(store, model, **wrong).fit(rows)
