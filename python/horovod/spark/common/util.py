"""Training data of estimators in a store: written from a DataFrame, or found there.

with prepare_data(2, store, df, ["label"], ["features"], validation=0.1) as index:
    train_rows, val_rows, columns, row_bytes = get_dataset_properties(index)
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame

from horovod.spark.common._columns import ARRAY, NO_CHANGE, Column, Columns, from_dicts, is_list, to_json
from horovod.spark.common._preparation import Prepared, Wanted, write
from horovod.spark.common._reader import open_dataset
from horovod.spark.common.store import FilesystemStore

__all__ = ["get_dataset_properties", "get_simple_meta_from_parquet", "prepare_data"]

# Spark's names of Arrow's types.
_NAMES = {
    "bool": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "uint8": "smallint",
    "uint16": "int",
    "uint32": "bigint",
    "halffloat": "float",
    "float": "float",
    "double": "double",
}

Properties = tuple[int, int, Columns, float]


@dataclass
class _DataSet:
    """One that was written. `frame` keeps the DataFrame, so that no other gets its id."""

    index: int
    frame: DataFrame
    users: int = 0
    ready: threading.Lock = field(default_factory=threading.Lock)
    prepared: Prepared | None = None


class _DataSets:
    """Those that this process has written and trains with, by what they were written from.

    A DataFrame that comes again meanwhile is not written again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sets: dict[Any, _DataSet] = {}

    def take(self, key: Any, frame: DataFrame) -> _DataSet:
        with self._lock:
            if key not in self._sets:  # numbers are those of all stores: get_dataset_properties() has nothing else
                taken = {known.index for known in self._sets.values()}
                index = next(number for number in range(len(taken) + 1) if number not in taken)
                self._sets[key] = _DataSet(index, frame)
            found = self._sets[key]
            found.users += 1
            return found

    def give_back(self, key: Any, data: _DataSet) -> None:
        with self._lock:
            data.users -= 1
            if not data.users:
                del self._sets[key]

    def prepared(self, index: int) -> Prepared | None:
        with self._lock:
            return next((known.prepared for known in self._sets.values() if known.index == index), None)


_data_sets = _DataSets()


@contextlib.contextmanager
def prepare_data(
    num_processes: int,
    store: FilesystemStore,
    df: DataFrame,
    label_columns: Sequence[str] = ("label",),
    feature_columns: Sequence[str] = ("features",),
    validation: float | str | None = None,
    sample_weight_col: str | None = None,
    compress_sparse: bool = False,
    partitions_per_process: int = 10,
    verbose: int = 0,
    random_seed: int | None = None,
) -> Iterator[int]:
    """Writes the columns of `df` that an estimator trains with into `store`, as Parquet.

    Args:
        num_processes: Ranks that will read; `partitions_per_process` files are written for each.
        validation: A fraction of the rows, or the column that is true or above 0 in those for validation.
        sample_weight_col: A column with weights of rows.
        compress_sparse: Columns of sparse vectors are written without their zeros.
        verbose: 2: says what is written.
        random_seed: By which rows are divided.

    Returns:
        The number of the data set, by which get_dataset_properties() and the store's paths know it. Until the context
        ends this process does not write over it. Another process may; ranks notice that, and fail.

    Raises:
        ValueError: A column is missing, of a type of which no array can be made, has missing values or values of
            different sizes, or there are no rows.
    """
    names = _names(feature_columns, label_columns, sample_weight_col)
    wanted = Wanted(tuple(names), validation, random_seed, compress_sparse, num_processes, partitions_per_process)
    key = (store.get_train_data_path(), store.get_val_data_path(), id(df), wanted)
    data = _data_sets.take(key, df)
    try:
        with data.ready:
            train, val = store.get_train_data_path(data.index), store.get_val_data_path(data.index)
            if data.prepared is None:
                if verbose >= 2:
                    print(f"writing {', '.join(names)} to {train}", flush=True)
                data.prepared = write(df, store, train, val, wanted)
                _remember(store, train, data.prepared)
        yield data.index
    finally:
        _data_sets.give_back(key, data)


def _names(features: Sequence[str], labels: Sequence[str], weight: str | None) -> list[str]:
    return list(dict.fromkeys([*features, *labels, *([weight] if weight else [])]))


def _remember(store: FilesystemStore, train_path: str, data: Prepared) -> None:
    known = to_json(
        data.columns, token=data.token, train_rows=data.train_rows, val_rows=data.val_rows, row_bytes=data.row_bytes
    )
    store.write_text(store.get_data_metadata_path(train_path), known)


def get_dataset_properties(dataset_idx: int) -> Properties:
    """(rows to train with, rows for validation, the columns, bytes of a row) of the data set of number `dataset_idx`,
    which prepare_data() of this process has written. ValueError: there is none."""
    data = _data_sets.prepared(dataset_idx)
    if data is None:
        raise ValueError(f"dataset_idx={dataset_idx}: prepare_data() has written no such data set in this process")
    return data.train_rows, data.val_rows, data.columns, data.row_bytes


def token_of(dataset_idx: int) -> str | None:
    """What lies beside the data set of number `dataset_idx`, of those that get_dataset_properties() knows."""
    data = _data_sets.prepared(dataset_idx)
    return data.token if data else None


def get_simple_meta_from_parquet(
    store: FilesystemStore,
    label_columns: Sequence[str],
    feature_columns: Sequence[str],
    sample_weight_col: str | None = None,
    dataset_idx: int | None = None,
) -> Properties:
    """What get_dataset_properties() returns, of Parquet that lies in `store`, whoever has written it.

    `dataset_idx` is the number of the data set, if it has one; `label_columns`, `feature_columns` and
    `sample_weight_col` say which of its columns are meant.

    What prepare_data() has written there says itself what its columns are; else the types and the first row say it.

    Raises:
        ValueError: Nothing is there, a column is missing, or no array of numbers can be made of it.
    """
    names = _names(feature_columns, label_columns, sample_weight_col)
    train, val = store.get_train_data_path(dataset_idx), store.get_val_data_path(dataset_idx)
    if not store.is_parquet_dataset(train):
        raise ValueError(f"no Parquet data at {train}, the training data of the store")
    data = open_dataset(train, store.storage_options)
    missing = [name for name in names if name not in data.schema.names]
    if missing:
        raise ValueError(f"{train}: no column {', '.join(missing)}; there are {', '.join(data.schema.names)}")
    rows = data.count_rows()
    if rows == 0:
        raise ValueError(f"no rows in {train}")
    val_rows = open_dataset(val, store.storage_options).count_rows() if store.is_parquet_dataset(val) else 0
    known = _known(store, train)
    first = data.head(1, columns=names)
    columns = {name: known[name] if name in known else _from_arrow(name, first.column(name)) for name in names}
    return rows, val_rows, columns, store.size(train) / rows


def _known(store: FilesystemStore, train_path: str) -> Columns:
    path = store.get_data_metadata_path(train_path)
    return from_dicts(json.loads(store.read(path))["columns"]) if store.exists(path) else {}


def _from_arrow(name: str, values: Any) -> Column:
    import pyarrow as pa

    kind, scalar = values.type, not is_list(values.type)
    values = values.combine_chunks()
    while is_list(values.type):
        values = values.flatten()
    element = _NAMES.get(str(values.type), "double" if pa.types.is_decimal(values.type) else None)
    if element is None:
        raise ValueError(f"column {name!r} is of type {kind}, expected numbers, booleans or lists of them")
    said, how = (element, NO_CHANGE) if scalar else (f"array<{element}>", ARRAY)
    return Column(said, False, len(values), len(values), how)
