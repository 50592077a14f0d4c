"""A rank's rows of a Parquet data set, as batches.

Rows are divided evenly, wherever files and row groups end: rank r of n has rows r*total/n to (r+1)*total/n of the files
in the order of their names, so each row belongs to one rank, and ranks have as many, but for one. A rank that would
have none, because there are fewer rows than ranks, has one of another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from horovod.spark.common._columns import Columns, arrays_of
from horovod.spark.common._packages import imported

if TYPE_CHECKING:
    import pyarrow as pa

Batch = dict[str, np.ndarray]

WINDOW_BYTES = 64 << 20  # among the rows of so many bytes each is drawn


@dataclass(frozen=True)
class Piece:
    """Rows [begin, end) of a row group."""

    row_group: Any
    begin: int
    end: int

    def read(self, names: Sequence[str]) -> pa.Table:
        table = self.row_group.to_table(columns=list(names), use_threads=False)
        return table.slice(self.begin, self.end - self.begin)


def open_dataset(path: str, storage_options: Mapping[str, Any] | None) -> Any:
    """The pyarrow.dataset.Dataset of the Parquet files at `path`. ImportError says what to install."""
    dataset = imported("pyarrow.dataset", "Parquet data")
    core = imported("fsspec.core", "Parquet data")
    fs, plain = core.url_to_fs(path, **dict(storage_options or {}))
    return dataset.dataset(plain, filesystem=fs, format="parquet")


def shard_of(dataset: Any, index: int, count: int) -> tuple[list[Piece], int]:
    """Rank `index`'s share among `count` ranks, and the number of all rows. ValueError: there are no rows."""
    groups = [
        (group, group.row_groups[0].num_rows)
        for fragment in sorted(dataset.get_fragments(), key=lambda fragment: fragment.path)
        for group in fragment.split_by_row_group()
    ]
    total = sum(rows for _, rows in groups)
    if total == 0:
        raise ValueError(f"no rows in {', '.join(dataset.files) or 'the data set'}")
    first, last = total * index // count, total * (index + 1) // count
    if first == last:
        first = index % total
        last = first + 1
    pieces, at = [], 0
    for group, rows in groups:
        begin, end = max(first - at, 0), min(last - at, rows)
        if begin < end:
            pieces.append(Piece(group, begin, end))
        at += rows
    return pieces, total


@dataclass
class Reader:
    """Batches of a rank's share of a data set.

    Args:
        path: Where the data lies, as fsspec takes it, with `storage_options` for it.
        columns: What is read.
        batch_size: Rows of a batch.
        shard: (index, count): this rank and how many there are.
        endless: Batches go on over the ends of epochs, so all have `batch_size` rows. Else an epoch's last batch has
            those that are left.
        shuffle: Rows come in another order in each epoch: groups of rows are permuted, and their rows drawn among
            `window` ones (default: as many as take 64 MiB).
        seed: Of the order.
        in_memory: All rows of the share stay in memory after they were read once, and are drawn from all of them.
        workers: Threads that read ahead; 0: none.
        transform: Gets each batch and returns it changed.
    """

    path: str
    columns: Columns
    batch_size: int
    shard: tuple[int, int] = (0, 1)
    storage_options: Mapping[str, Any] | None = None
    endless: bool = False
    shuffle: bool = False
    window: int | None = None
    seed: int | None = None
    in_memory: bool = False
    workers: int = 2
    transform: Callable[[Batch], Batch] | None = None

    def __post_init__(self) -> None:
        dataset = open_dataset(self.path, self.storage_options)
        missing = [name for name in self.columns if name not in dataset.schema.names]
        if missing:
            raise ValueError(
                f"{self.path}: no column {', '.join(missing)}; there are {', '.join(dataset.schema.names)}"
            )
        self._pieces, self.total_rows = shard_of(dataset, *self.shard)
        self.rows = sum(piece.end - piece.begin for piece in self._pieces)
        self._random = np.random.default_rng(None if self.seed is None else (self.seed, self.shard[0]))
        self._kept: Batch | None = None

    @property
    def batches(self) -> int:
        """Batches of an epoch that is not endless."""
        return -(-self.rows // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        for batch in self._cut(self._windows()):
            yield self.transform(batch) if self.transform else batch

    def _windows(self) -> Iterator[Batch]:
        """The rows of an epoch, or of all to come, by as many as are drawn from at once."""
        while True:
            for rows in self._all() if self.in_memory else self._epoch():
                yield self._shuffled(rows) if self.shuffle else rows
            if not self.endless:
                return

    def _all(self) -> Iterator[Batch]:
        if self._kept is None:
            self._kept = _joined([arrays_of(table, self.columns) for table in self._tables(self._pieces)])
        # Whoever gets batches may change them.
        yield self._kept if self.shuffle else {name: values.copy() for name, values in self._kept.items()}

    def _epoch(self) -> Iterator[Batch]:
        order = self._random.permutation(len(self._pieces)) if self.shuffle else range(len(self._pieces))
        gathered: list[Batch] = []
        rows = size = 0
        for table in self._tables([self._pieces[index] for index in order]):
            arrays = arrays_of(table, self.columns)
            gathered.append(arrays)
            rows += table.num_rows
            size += sum(values.nbytes for values in arrays.values())
            if not self.shuffle or (rows >= self.window if self.window else size >= WINDOW_BYTES):
                yield _joined(gathered)
                gathered, rows, size = [], 0, 0
        if gathered:
            yield _joined(gathered)

    def _tables(self, pieces: Sequence[Piece]) -> Iterator[pa.Table]:
        names = list(self.columns)
        if self.workers == 0:
            yield from (piece.read(names) for piece in pieces)
            return
        with ThreadPoolExecutor(self.workers, thread_name_prefix="hvd-reader") as pool:
            ahead: deque[Future[pa.Table]] = deque()
            try:
                for piece in pieces:
                    ahead.append(pool.submit(piece.read, names))
                    if len(ahead) > self.workers:
                        yield ahead.popleft().result()
                while ahead:
                    yield ahead.popleft().result()
            finally:
                for future in ahead:
                    future.cancel()

    def _shuffled(self, rows: Batch) -> Batch:
        order = self._random.permutation(_rows(rows))
        return {name: values[order] for name, values in rows.items()}

    def _cut(self, windows: Iterator[Batch]) -> Iterator[Batch]:
        rest: Batch | None = None
        for window in windows:
            rows = _joined([rest, window]) if rest else window
            count = _rows(rows)
            whole = count - count % self.batch_size
            for begin in range(0, whole, self.batch_size):
                yield _rows_from(rows, begin, begin + self.batch_size)
            rest = _rows_from(rows, whole, count) if whole < count else None
        if rest:
            yield rest


def _rows(batch: Batch) -> int:
    return len(next(iter(batch.values())))


def _rows_from(batch: Batch, begin: int, end: int) -> Batch:
    return {name: values[begin:end] for name, values in batch.items()}


def _joined(batches: Sequence[Batch]) -> Batch:
    if len(batches) == 1:
        return batches[0]
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
