"""What is known of a column of training data, and its values as arrays of numpy."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

NO_CHANGE = "nochange"
ARRAY = "array"
PACKED = "custom_sparse_format"


@dataclass(frozen=True)
class Column:
    """A column.

    Args:
        spark_data_type: Its type in Spark's words; "vector" for those of Spark ML.
        is_sparse_vector_only: Whether all its values are sparse vectors.
        shape: Elements of each value.
        max_size: The most elements that a value has in Parquet, zeros of packed vectors apart.
        intermediate_format: How it lies in Parquet: "nochange" (a number), "array" or "custom_sparse_format", an
            array with the number n of elements that are not zero, their n indices, their n values, and padding.
    """

    spark_data_type: str
    is_sparse_vector_only: bool
    shape: int
    max_size: int
    intermediate_format: str

    @property
    def is_scalar(self) -> bool:
        return self.intermediate_format == NO_CHANGE


Columns = dict[str, Column]


def to_json(columns: Columns, **more: Any) -> str:
    """The columns, and more that is known of the data, as text."""
    return json.dumps({"columns": {name: asdict(column) for name, column in columns.items()}, **more})


def from_dicts(columns: Mapping[str, Any]) -> Columns:
    """The columns of to_json(), or ones that are columns already."""
    return {name: column if isinstance(column, Column) else Column(**dict(column)) for name, column in columns.items()}


def missing_columns(frame: DataFrame, wanted: Sequence[str], what: str) -> None:
    """ValueError that names columns that `frame` does not have."""
    missing = [name for name in wanted if name not in frame.columns]
    if missing:
        raise ValueError(f"{what} {', '.join(missing)}: not in the DataFrame, which has {', '.join(frame.columns)}")


def _unpack(rows: np.ndarray, size: int) -> np.ndarray:
    """Vectors of `size` elements from packed ones, one in each row."""
    dense = np.zeros((len(rows), size), dtype=rows.dtype)
    counts = rows[:, 0].astype(np.int64)
    for row, count in enumerate(counts):
        dense[row, rows[row, 1 : 1 + count].astype(np.int64)] = rows[row, 1 + count : 1 + 2 * count]
    return dense


def arrays_of(table: pa.Table, columns: Columns) -> dict[str, np.ndarray]:
    """The columns of a table of Arrow: (rows,) for numbers, (rows, elements) for arrays and vectors.

    Raises:
        ValueError: A value is missing, or has another number of elements than the column's others.
    """
    return {name: _array_of(name, table.column(name), column) for name, column in columns.items()}


def _array_of(name: str, values: pa.ChunkedArray, column: Column) -> np.ndarray:
    import pyarrow as pa

    rows, missing = len(values), values.null_count
    while is_list(values.type):
        values = pa.chunked_array([chunk.flatten() for chunk in values.chunks], type=values.type.value_type)
        missing += values.null_count
    if missing:
        raise ValueError(f"column {name!r}: {missing} values are missing (null)")
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.float64())
    flat: np.ndarray = np.require(values.to_numpy(), requirements="W")  # torch warns of read-only memory
    if column.is_scalar:
        return flat
    width = column.shape if column.intermediate_format == ARRAY else 1 + 2 * column.max_size
    if len(flat) != rows * width:
        raise ValueError(f"column {name!r}: {rows} values have {len(flat)} elements, expected {width} in each")
    matrix = flat.reshape(rows, width)
    return matrix if column.intermediate_format == ARRAY else _unpack(matrix, column.shape)


def is_list(kind: pa.DataType) -> bool:
    """Whether it is one of Arrow's types of lists."""
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def row_array(value: Any) -> np.ndarray:
    """One value of a row of Spark, a number, an array or a vector, as a flat array."""
    if hasattr(value, "toArray"):
        value = value.toArray()
    flat = np.asarray(value).reshape(-1)
    return flat.astype(np.float64) if flat.dtype == object else flat  # decimals


def stacked(rows: Iterable[Any], name: str, column: str) -> np.ndarray:
    """The values of the field `column` of rows of Spark: (rows,) for numbers, else (rows, elements).

    ValueError, with `name` of who asks: they differ in their number of elements.
    """
    values = [row_array(row[column]) for row in rows]
    sizes = {value.size for value in values}
    if len(sizes) > 1:
        raise ValueError(f"{name}: values of column {column!r} have {sorted(sizes)} elements, expected as many in each")
    return np.stack(values)
