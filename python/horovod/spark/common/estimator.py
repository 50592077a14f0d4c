"""What estimators of all frameworks do: data into the store, ranks that train, a model that comes back."""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from pyspark.ml import Estimator, Model
from pyspark.sql import DataFrame

from horovod.spark.common._columns import Columns, from_dicts
from horovod.spark.common._persistence import Persistent
from horovod.spark.common._prediction import transformed
from horovod.spark.common._training import DataSet, Training
from horovod.spark.common.backend import Backend, SparkBackend
from horovod.spark.common.params import EstimatorParams, ModelParams
from horovod.spark.common.util import get_dataset_properties, get_simple_meta_from_parquet, prepare_data, token_of

__all__ = ["HorovodEstimator", "HorovodModel"]


class HorovodEstimator(Estimator, EstimatorParams, Persistent, ABC):  # type: ignore[misc]
    """Trains a model on the rows of a DataFrame, in ranks on Spark. Parameters: docs/api/spark.md."""

    FRAMEWORK = ""  # before the time in the names of runs

    def fit(self, df: DataFrame, params: Any = None) -> Any:
        """Writes the DataFrame's columns into the store, trains, and returns the trained model.

        Args:
            df: The rows.
            params: A dictionary of Params with other values for this call, or a list of such dictionaries.
        Raises:
            ValueError: A parameter or a column is wrong; it is named.
            RuntimeError: Training has failed on a rank, as in horovod.spark.run().
        """
        return super().fit(df, params)

    def fit_on_parquet(self, params: Mapping[Any, Any] | None = None, dataset_idx: int | None = None) -> Any:
        """Trains on the Parquet data that lies at the store's train_path and val_path, and returns the model.

        Args:
            params: Other values for this call.
            dataset_idx: The number of the data set, if it has one.
        Raises:
            ValueError, RuntimeError: As fit().
        """
        if params:
            return self.copy(params).fit_on_parquet(dataset_idx=dataset_idx)
        self._check()
        store = self.value("store")
        rows, val_rows, columns, _ = get_simple_meta_from_parquet(
            store, self.value("label_cols"), self.value("feature_cols"), self.value("sample_weight_col"), dataset_idx
        )
        return self._train(self._backend(), DataSet(rows, val_rows, columns, dataset_idx, None))

    def _fit(self, df: DataFrame) -> Any:
        self._check()
        backend = self._backend()
        with prepare_data(
            backend.num_processes(),
            self.value("store"),
            df,
            self.value("label_cols"),
            self.value("feature_cols"),
            self.value("validation"),
            self.value("sample_weight_col"),
            self.value("compress_sparse_cols"),
            self.value("partitions_per_process"),
            self.value("verbose"),
            self.value("random_seed"),
        ) as index:
            rows, val_rows, columns, _ = get_dataset_properties(index)
            return self._train(backend, DataSet(rows, val_rows, columns, index, token_of(index)))

    def _backend(self) -> Backend:
        given, ranks = self.value("backend"), self.value("num_proc")
        if given is not None and ranks is not None:
            raise ValueError(f"backend and num_proc={ranks} are both given, expected one of them")
        return given if given is not None else SparkBackend(ranks, verbose=self.value("verbose"))

    def _check(self) -> None:
        """ValueError for parameters that no data can make right."""
        self._check_values()
        who = type(self).__name__
        for name in ("model", "store", "feature_cols", "label_cols"):
            if not self.value(name):
                raise ValueError(f"{who}: {name} is {self.value(name)!r}, expected one")
        labels = self.value("label_cols")
        strange = set(self.value("categorical_cols") or ()) - set(self.value("feature_cols"))
        if strange:
            raise ValueError(f"{who}: categorical_cols {sorted(strange)} are not among feature_cols")
        weights, shapes = self.value("loss_weights"), self.value("label_shapes")
        for name, given in (("loss_weights", weights), ("label_shapes", shapes)):
            if given and len(given) != len(labels):
                raise ValueError(f"{who}: {len(given)} {name} for {len(labels)} label_cols {labels}")

    def _training(self, data: DataSet, ranks: int) -> Training:
        made = f"{self.FRAMEWORK}_{int(time.time())}_{secrets.token_hex(3)}"  # several may begin in one second
        run_id = self.value("run_id") or made
        weight = self.value("sample_weight_col")
        if weight and data.columns[weight].shape != 1:
            raise ValueError(
                f"sample_weight_col {weight!r} has {data.columns[weight].shape} elements in each value, expected 1"
            )
        self._check_columns(data.columns)
        if self.value("validation") and data.val_rows == 0:
            raise ValueError(f"validation is {self.value('validation')!r}, but the store has no rows for validation")
        return Training.of(self, data, ranks, run_id)

    def _checkpoint_of(self, training: Training) -> bytes | None:
        """The checkpoint from which the run goes on."""
        store, path = self.value("store"), training.store.checkpoint_path
        return store.read(path) if path and store.exists(path) else None

    def _check_columns(self, columns: Columns) -> None:
        """ValueError for columns that do not fit the model."""

    def _of_model(self, training: Training, history: Any, model: Any) -> dict[str, Any]:
        """The arguments of the trained model that frameworks have in common."""
        return {
            "history": history,
            "model": model,
            "feature_columns": self.value("feature_cols"),
            "label_columns": self.value("label_cols"),
            "run_id": training.run_id,
            "_metadata": training.columns,
        }

    @abstractmethod
    def _train(self, backend: Backend, data: DataSet) -> Any:
        """Trains on `data`, and returns the model."""


class HorovodModel(Model, ModelParams, Persistent, ABC):  # type: ignore[misc]
    """A trained model: `transform(df)` adds its predictions to the rows of a DataFrame."""

    def transform(self, df: DataFrame, params: Any = None) -> DataFrame:
        """The rows with a column of predictions for each label, made on CPUs.

        A prediction of one number has the type of its label, rounded for whole numbers; others are arrays where the
        label is one, else vectors.

        Raises:
            ValueError: A column is missing, or there are not as many output columns as labels.
        """
        return super().transform(df, params)

    def _transform(self, df: DataFrame) -> DataFrame:
        labels = self.value("label_columns")
        outputs = self.value("output_cols") or [f"{label}__output" for label in labels]
        if len(outputs) != len(labels):
            raise ValueError(f"{len(outputs)} output columns {outputs} for {len(labels)} labels {labels}")
        columns = from_dicts(self.value("_metadata") or {})
        return transformed(df, self.value("feature_columns"), labels, outputs, columns, self._predictor())

    @abstractmethod
    def _predictor(self) -> Any:
        """What travels to executors: a function of arrays of the features that returns a list of arrays."""
