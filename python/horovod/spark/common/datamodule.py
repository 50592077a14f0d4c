"""Where the batches of an estimator's ranks come from.

class Mine(DataModule):
    short_name = "mine"

    def train_data(self):
        ...

estimator = TorchEstimator(data_module=Mine, ...)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from horovod.spark.common._columns import Columns
from horovod.spark.common._packages import imported
from horovod.spark.common._reader import Batch, Reader

__all__ = ["DataModule", "ParquetDataModule", "PetastormDataModule"]


class DataModule(ABC):
    """A rank's batches of training and of validation: dictionaries of numpy arrays by column. A context manager.

    Args:
        train_dir, val_dir: Where the data lies.
        num_train_epochs: Epochs that are trained.
        has_val: Whether there is validation.
        train_batch_size, val_batch_size: Rows of a batch.
        shuffle: Whether rows come in another order in each epoch.
        transform_fn: Gets each batch and returns it changed.
        inmemory_cache_all: Whether this rank's rows stay in memory.
        cur_shard, shard_count: This rank, and how many there are.
        schema_fields: What is read: columns by name (see horovod.spark.common._columns.Column).
        storage_options: For the file system, as fsspec takes them.
        steps_per_epoch_train, steps_per_epoch_val: Batches of an epoch.
        verbose: Whether to say what is read.
        more: What only some know: random_seed, window, train_workers, val_workers.
    """

    short_name = "data"

    def __init__(
        self,
        train_dir: str,
        val_dir: str | None,
        num_train_epochs: int = 1,
        has_val: bool = True,
        train_batch_size: int = 32,
        val_batch_size: int = 32,
        shuffle: bool = True,
        transform_fn: Callable[[Batch], Batch] | None = None,
        inmemory_cache_all: bool = False,
        cur_shard: int = 0,
        shard_count: int = 1,
        schema_fields: Columns | None = None,
        storage_options: Mapping[str, Any] | None = None,
        steps_per_epoch_train: int = 1,
        steps_per_epoch_val: int = 1,
        verbose: bool = True,
        **more: Any,
    ) -> None:
        self.train_dir = train_dir
        self.val_dir = val_dir
        self.num_train_epochs = num_train_epochs
        self.has_val = has_val
        self.train_batch_size = train_batch_size
        self.val_batch_size = val_batch_size
        self.shuffle = shuffle
        self.transform_fn = transform_fn
        self.inmemory_cache_all = inmemory_cache_all
        self.cur_shard = cur_shard
        self.shard_count = shard_count
        self.schema_fields = schema_fields or {}
        self.storage_options = storage_options
        self.steps_per_epoch_train = steps_per_epoch_train
        self.steps_per_epoch_val = steps_per_epoch_val
        self.verbose = verbose
        self.more = more

    def __enter__(self) -> DataModule:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    @abstractmethod
    def train_data(self) -> Iterable[Batch]:
        """Batches without end; each epoch takes `steps_per_epoch_train` of them."""

    @abstractmethod
    def val_data(self) -> Iterable[Batch]:
        """The batches of one validation, anew each time it is iterated over."""


class ParquetDataModule(DataModule):
    """Reads Parquet by pyarrow; the rows of a rank are those of horovod.spark.common._reader."""

    short_name = "parquet"

    def _reader(self, path: str, batch_size: int, workers: str, **kind: Any) -> Reader:
        return Reader(
            path,
            self.schema_fields,
            batch_size,
            (self.cur_shard, self.shard_count),
            self.storage_options,
            in_memory=self.inmemory_cache_all,
            workers=self.more.get(workers, 2),
            transform=self.transform_fn,
            **kind,
        )

    def train_data(self) -> Iterator[Batch]:
        more = {"window": self.more.get("window"), "seed": self.more.get("random_seed")}
        reader = self._reader(
            self.train_dir, self.train_batch_size, "train_workers", endless=True, shuffle=self.shuffle, **more
        )
        if self.verbose:
            print(f"shard {self.cur_shard}: {reader.rows} of {reader.total_rows} rows of {self.train_dir}", flush=True)
        return iter(reader)

    def val_data(self) -> Reader:
        assert self.val_dir is not None
        return self._reader(self.val_dir, self.val_batch_size, "val_workers")


PetastormDataModule = ParquetDataModule  # its name where petastorm reads the data


def transformation(
    change: Callable[[Any], Any] | None, added: Sequence[Sequence[Any]] | None, removed: Sequence[str] | None
) -> Callable[[Batch], Batch] | None:
    """What changes batches as `change` does with them as a pandas.DataFrame.

    Args:
        change: None if only columns are removed.
        added: (name, numpy type, shape, nullable) of columns that `change` makes or changes.
        removed: Columns that are taken away after it.
    Raises:
        ImportError: pandas is missing.
    """
    if change is None and not removed:
        return None
    pandas: Any = imported("pandas", "transformation_fn") if change is not None else None
    types = {name: np.dtype(kind) for name, kind, *_ in added or ()}

    def apply(batch: Batch) -> Batch:
        if change is not None:
            frame = change(pandas.DataFrame({name: _as_column(values) for name, values in batch.items()}))
            batch = {str(name): _from_column(frame[name], types.get(str(name))) for name in frame.columns}
        return {name: values for name, values in batch.items() if name not in (removed or ())}

    return apply


def _as_column(values: np.ndarray) -> Any:
    return values if values.ndim == 1 else list(values)


def _from_column(series: Any, kind: np.dtype[Any] | None) -> np.ndarray:
    values: np.ndarray = series.to_numpy()
    if values.dtype == object:
        values = np.stack([np.asarray(value).reshape(-1) for value in values])
        values = values[:, 0] if values.shape[1] == 1 and np.ndim(series.iloc[0]) == 0 else values
    return values if kind is None else values.astype(kind)
