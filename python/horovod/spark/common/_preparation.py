"""Writes a DataFrame into a store, as Parquet that ranks read, and finds out what its columns are."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.ml.functions import vector_to_array
from pyspark.ml.linalg import SparseVector, VectorUDT
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from horovod.spark.common._columns import ARRAY, NO_CHANGE, PACKED, Column, Columns, missing_columns
from horovod.spark.common.store import FilesystemStore


@dataclass(frozen=True)
class Wanted:
    """What is to be written of a DataFrame, and how.

    Args:
        columns: The names of the columns that ranks read.
        validation: A fraction of the rows, the column that is true or above 0 in those for validation, or None.
        seed: By which rows are divided; None: another division each time.
        compress_sparse: Whether columns of sparse vectors are packed.
        ranks, files_per_rank: Their product is the number of files.
    """

    columns: tuple[str, ...]
    validation: float | str | None
    seed: int | None
    compress_sparse: bool
    ranks: int
    files_per_rank: int


@dataclass(frozen=True)
class Prepared:
    """What was written."""

    train_rows: int
    val_rows: int
    columns: Columns
    row_bytes: float
    token: str  # lies beside the data, so that ranks know it from what another process has written there


def check_types(frame: DataFrame, names: Sequence[str]) -> None:
    """ValueError for a column of which no array of numbers can be made."""
    for name in names:
        kind = frame.schema[name].dataType
        element = kind
        while isinstance(element, T.ArrayType):
            element = element.elementType
        if not isinstance(element, (T.NumericType, T.BooleanType)) and not isinstance(kind, VectorUDT):
            raise ValueError(
                f"column {name!r} is of type {kind.simpleString()}, expected numbers, booleans, arrays, vectors"
            )


def split(frame: DataFrame, validation: float | str | None, seed: int | None) -> tuple[DataFrame, DataFrame | None]:
    """The rows to train with, and those of the validation, if there is one."""
    if not validation:
        return frame, None
    if isinstance(validation, float):
        train, val = frame.randomSplit([1 - validation, validation], seed)
        return train, val
    missing_columns(frame, [validation], "the validation column")
    kind = frame.schema[validation].dataType
    if not isinstance(kind, (T.NumericType, T.BooleanType)):
        raise ValueError(
            f"the validation column {validation!r} is of type {kind.simpleString()}, expected a boolean or a number"
        )
    chosen = F.coalesce(F.col(f"`{validation}`").cast("double") > 0, F.lit(False))
    return frame.where(~chosen), frame.where(chosen)


def write(frame: DataFrame, store: FilesystemStore, train_path: str, val_path: str, wanted: Wanted) -> Prepared:
    """Writes the rows to `train_path` and `val_path`, over what is there, and what is known of them beside."""
    missing_columns(frame, wanted.columns, "column")
    check_types(frame, wanted.columns)
    packed = _packed_sizes(frame, wanted) if wanted.compress_sparse else {}
    train, val = split(frame, wanted.validation, wanted.seed)
    share = wanted.validation if isinstance(wanted.validation, float) else 0.5 if wanted.validation else 0.0
    sizes = [_write_part(train, train_path, wanted, packed, 1 - share)]
    if val is None:
        store.delete(val_path)  # of another DataFrame, which had the place before
    else:
        sizes.append(_write_part(val, val_path, wanted, packed, share))
    rows = [counts.pop("") for counts in sizes]
    for count, what in zip(rows, ("to train with", "for validation"), strict=False):
        if count == 0:
            raise ValueError(f"no rows {what} (validation: {wanted.validation!r})")
    columns = {name: _column(frame, name, [counts[name] for counts in sizes], packed) for name in wanted.columns}
    train_size = store.size(train_path)
    return Prepared(rows[0], rows[1] if val is not None else 0, columns, train_size / rows[0], secrets.token_hex(8))


def _is_vector(frame: DataFrame, name: str) -> bool:
    return isinstance(frame.schema[name].dataType, VectorUDT)


def _packed_sizes(frame: DataFrame, wanted: Wanted) -> dict[str, tuple[int, int]]:
    """Of each column of which all values are sparse vectors: the most elements that are not zero, and all of them."""
    names = [name for name in wanted.columns if _is_vector(frame, name)]
    if not names:
        return {}
    nonzero = F.udf(lambda v: len(v.indices) if isinstance(v, SparseVector) else None, T.LongType())
    total = F.udf(lambda v: None if v is None else int(v.size), T.LongType())
    asked: list[Any] = [F.count(F.lit(1))]
    for name in names:
        vector = F.col(f"`{name}`")
        asked += [F.count(nonzero(vector)), F.max(nonzero(vector)), F.min(total(vector)), F.max(total(vector))]
    rows, *found = tuple(frame.agg(*asked).first() or ())
    sizes = {}
    for at, name in enumerate(names):
        count, most, smallest, largest = found[4 * at : 4 * at + 4]
        if 0 < count == rows:
            _check_uniform(name, smallest, largest)
            sizes[name] = (most, largest)
    return sizes


def _check_uniform(name: str, smallest: int, largest: int) -> None:
    if smallest != largest:
        raise ValueError(
            f"column {name!r}: values have {smallest} to {largest} elements, expected as many in each: no uniform shape"
        )


def _pack(most: int) -> Any:
    def packed(vector: Any) -> list[float]:
        count = len(vector.indices)
        return [float(count), *map(float, vector.indices), *vector.values] + [0.0] * (2 * (most - count))

    return F.udf(packed, T.ArrayType(T.DoubleType()))


def _flat(frame: DataFrame, name: str, packed: dict[str, tuple[int, int]]) -> Any:
    """The column as it lies in Parquet: a number or an array of numbers."""
    column = F.col(f"`{name}`")
    if name in packed:
        return _pack(packed[name][0])(column).alias(name)
    if _is_vector(frame, name):
        return F.when(column.isNotNull(), vector_to_array(column)).alias(name)
    kind = frame.schema[name].dataType
    while isinstance(kind, T.ArrayType) and isinstance(kind.elementType, T.ArrayType):
        column, kind = F.flatten(column), kind.elementType
    return column.alias(name)


def _write_part(
    frame: DataFrame, path: str, wanted: Wanted, packed: dict[str, tuple[int, int]], share: float
) -> dict[str, Any]:
    """Writes it, and returns the number of rows as "", and by column (missing values, fewest elements, most)."""
    files = max(int(wanted.ranks * wanted.files_per_rank * share), wanted.ranks)
    flat = frame.select(*[_flat(frame, name, packed) for name in wanted.columns])
    flat.repartition(files).write.mode("overwrite").parquet(path)
    written = frame.sparkSession.read.schema(flat.schema).parquet(path)
    asked: list[Any] = [F.count(F.lit(1))]
    for name in wanted.columns:
        column = F.col(f"`{name}`")
        size = F.size(column) if isinstance(written.schema[name].dataType, T.ArrayType) else F.lit(1)
        missing = column.isNull()
        if isinstance(written.schema[name].dataType, T.ArrayType):
            missing = missing | F.exists(column, lambda element: element.isNull())
        asked += [F.count(F.when(missing, 1)), F.min(size), F.max(size)]
    rows, *found = tuple(written.agg(*asked).first() or ())
    return {"": rows} | {name: tuple(found[3 * at : 3 * at + 3]) for at, name in enumerate(wanted.columns)}


def _column(
    frame: DataFrame, name: str, counts: Sequence[tuple[int, int, int]], packed: dict[str, tuple[int, int]]
) -> Column:
    """What the column is. ValueError: values are missing, or differ in their number of elements."""
    missing = sum(count for count, _, _ in counts)
    if missing:
        raise ValueError(f"column {name!r}: {missing} values are missing (null)")
    smallest, largest = min(low for _, low, _ in counts), max(high for _, _, high in counts)
    _check_uniform(name, smallest, largest)
    kind = frame.schema[name].dataType
    said = "vector" if isinstance(kind, VectorUDT) else kind.simpleString()
    if name in packed:
        most, size = packed[name]
        return Column(said, True, size, most, PACKED)
    scalar = not isinstance(kind, (T.ArrayType, VectorUDT))
    return Column(said, False, largest, largest, NO_CHANGE if scalar else ARRAY)
