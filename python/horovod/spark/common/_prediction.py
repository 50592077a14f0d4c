"""A trained model's predictions as columns of a DataFrame."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
from pyspark import Broadcast
from pyspark.ml.linalg import DenseVector, VectorUDT
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from horovod.spark.common._columns import Column, Columns, missing_columns, stacked

Predictor = Callable[[list[np.ndarray]], list[np.ndarray]]


class LazyPredictor(ABC):
    """A Predictor that travels to executors as bytes, and makes its model, on CPUs, at its first use in a process."""

    _model: Any = None

    @abstractmethod
    def load(self) -> Any:
        """The model."""

    @abstractmethod
    def predict(self, model: Any, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """What the model says of the arrays, one for each feature: one for each label."""

    def __call__(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        if self._model is None:
            self._model = self.load()
        return self.predict(self._model, arrays)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_model"}


_ROWS = 256  # of which a prediction is made at once


def transformed(
    frame: DataFrame,
    features: Sequence[str],
    labels: Sequence[str],
    outputs: Sequence[str],
    columns: Columns,
    predictor: Predictor,
) -> DataFrame:
    """The rows of `frame` with what `predictor` says of their `features` in the columns `outputs`, one for each label.

    The predictor gets an array for each feature and returns one for each label, with a row for each row. How many
    numbers a prediction has is found out by one for the first row.
    """
    missing_columns(frame, features, "feature column")
    there = [name for name in outputs if name in frame.columns]
    if there:
        raise ValueError(
            f"output column {', '.join(there)}: the DataFrame has it already; setOutputCols() names others"
        )
    first = frame.select(*[f"`{name}`" for name in features]).first()
    sizes = (
        [1] * len(labels)
        if first is None
        else [int(made[0].size) for made in _predicted([first], features, labels, predictor)]
    )
    kinds = [_type(frame, label, columns.get(label), size) for label, size in zip(labels, sizes, strict=True)]
    schema = T.StructType(
        [*frame.schema.fields, *(T.StructField(name, kind) for name, kind in zip(outputs, kinds, strict=True))]
    )
    shared = frame.sparkSession.sparkContext.broadcast(predictor)
    rows = frame.rdd.mapPartitions(_Rows(shared, tuple(features), tuple(labels), kinds))
    return frame.sparkSession.createDataFrame(rows, schema, verifySchema=False)


def _type(frame: DataFrame, label: str, column: Column | None, size: int) -> T.DataType:
    said = column.spark_data_type if column else None
    if said is None and label in frame.columns:
        kind = frame.schema[label].dataType
        said = "vector" if isinstance(kind, VectorUDT) else kind.simpleString()
    said = said or "double"
    if said.startswith("array"):
        return T.ArrayType(T.DoubleType())
    if said == "vector" or size > 1:
        return VectorUDT()
    kinds: tuple[Any, ...] = (T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType)
    return next((kind() for kind in kinds if kind().simpleString() == said), T.DoubleType())


def _predicted(
    rows: list[Any], features: Sequence[str], labels: Sequence[str], predictor: Predictor
) -> list[np.ndarray]:
    made = predictor([stacked(rows, "transform", name) for name in features])
    if len(made) != len(labels):
        raise ValueError(f"the model has {len(made)} outputs, expected {len(labels)}, one for each of {list(labels)}")
    for label, values in zip(labels, made, strict=True):
        if len(values) != len(rows):
            raise ValueError(f"the model's output for {label!r} has {len(values)} rows for {len(rows)}")
    return [np.asarray(values).reshape(len(rows), -1) for values in made]


def _value(numbers: np.ndarray, kind: T.DataType) -> Any:
    if isinstance(kind, VectorUDT):
        return DenseVector(numbers.astype(np.float64))
    if isinstance(kind, T.ArrayType):
        return numbers.astype(np.float64).tolist()
    if isinstance(kind, T.IntegralType):
        return round(float(numbers[0])) if np.isfinite(numbers[0]) else None
    return float(numbers[0])


class _Rows:
    """Runs in executors: rows of a partition with predictions behind their values."""

    def __init__(
        self,
        predictor: Broadcast[Predictor],
        features: tuple[str, ...],
        labels: tuple[str, ...],
        kinds: list[T.DataType],
    ) -> None:
        self._predictor = predictor
        self._features = features
        self._labels = labels
        self._kinds = kinds

    def __call__(self, rows: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        left = iter(rows)
        while some := list(islice(left, _ROWS)):
            made = _predicted(some, self._features, self._labels, self._predictor.value)
            for at, row in enumerate(some):
                values = (_value(array[at], kind) for array, kind in zip(made, self._kinds, strict=True))
                yield (*row, *values)
