"""What ranks read of a Parquet data set: each row once, in batches, in other orders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from horovod.spark._task import DEVICES
from horovod.spark.common._columns import ARRAY, NO_CHANGE, PACKED, Column, arrays_of
from horovod.spark.common._reader import Reader
from horovod.spark.common._training import gpu_index
from horovod.spark.common.datamodule import ParquetDataModule, transformation

COLUMNS = {"n": Column("bigint", False, 1, 1, NO_CHANGE), "pair": Column("array<double>", False, 2, 2, ARRAY)}


def data(folder: Path, *files: int, group: int = 7) -> str:
    """Files of so many rows: n counts them all, pair is [n, -n]."""
    folder.mkdir(exist_ok=True)
    at = 0
    for index, rows in enumerate(files):
        numbers = list(range(at, at + rows))
        table = pa.table({"n": numbers, "pair": [[float(n), -float(n)] for n in numbers]})
        pq.write_table(table, folder / f"part-{index}.parquet", row_group_size=group)
        at += rows
    return str(folder)


def numbers(reader: Any) -> list[int]:
    return [int(n) for batch in reader for n in batch["n"]]


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
@pytest.mark.parametrize("how", [{}, {"shuffle": True}, {"shuffle": True, "window": 3}, {"in_memory": True}, {"workers": 0}])
def test_each_row_is_of_one_rank(tmp_path: Path, ranks: int, how: dict[str, Any]) -> None:
    path = data(tmp_path / "data", 20, 0, 13, 8)
    of_ranks = []
    for rank in range(ranks):
        reader = Reader(path, COLUMNS, 4, (rank, ranks), **how)
        read = list(reader)
        of_ranks.append([int(n) for batch in read for n in batch["n"]])
        assert len(read) == reader.batches
        assert {len(batch["n"]) for batch in read[:-1]} <= {4}
        for batch in read:
            np.testing.assert_array_equal(batch["pair"], np.stack([batch["n"], -batch["n"]], axis=1))
            assert batch["n"].flags.writeable
    assert sorted(n for rows in of_ranks for n in rows) == list(range(41))
    assert max(map(len, of_ranks)) - min(map(len, of_ranks)) <= 1
    if not how.get("shuffle"):
        assert of_ranks == [sorted(rows) for rows in of_ranks]


def test_orders_differ_between_epochs_and_are_those_of_the_seed(tmp_path: Path) -> None:
    path = data(tmp_path / "data", 30)

    def epochs(seed: int | None) -> list[int]:
        batches = iter(Reader(path, COLUMNS, 5, endless=True, shuffle=True, seed=seed))
        return [int(n) for _ in range(12) for n in next(batches)["n"]]

    once = epochs(1)
    assert sorted(once[:30]) == sorted(once[30:]) == list(range(30))
    assert once[:30] != once[30:] != sorted(once[30:])
    assert epochs(1) == once != epochs(2)


def test_batches_without_end_go_on_over_epochs(tmp_path: Path) -> None:
    batches = iter(Reader(data(tmp_path / "data", 5), COLUMNS, 3, endless=True))
    assert [next(batches)["n"].tolist() for _ in range(5)] == [[0, 1, 2], [3, 4, 0], [1, 2, 3], [4, 0, 1], [2, 3, 4]]


def test_more_ranks_than_rows_share_them(tmp_path: Path) -> None:
    path = data(tmp_path / "data", 2)
    of_ranks = [numbers(Reader(path, COLUMNS, 4, (rank, 5))) for rank in range(5)]
    assert [len(rows) for rows in of_ranks] == [1] * 5
    assert {n for rows in of_ranks for n in rows} == {0, 1}


@pytest.mark.parametrize("shuffle", [False, True])
def test_who_changes_a_batch_does_not_change_what_is_kept(tmp_path: Path, shuffle: bool) -> None:
    reader = Reader(data(tmp_path / "data", 6), COLUMNS, 4, in_memory=True, shuffle=shuffle)
    for _ in range(2):
        for batch in reader:
            batch["n"] *= 0
    assert sorted(numbers(reader)) == list(range(6))


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no column m; there are n, pair"):
        Reader(data(tmp_path / "data", 2), {"m": COLUMNS["n"]}, 1)
    with pytest.raises(ValueError, match="no rows in"):
        Reader(data(tmp_path / "empty", 0), COLUMNS, 1)
    with pytest.raises(ValueError, match="'pair': 2 values have 3 elements, expected 2 in each"):
        arrays_of(pa.table({"n": [1, 2], "pair": [[1.0], [2.0, 3.0]]}), COLUMNS)
    for missing in ([None, [1.0, 2.0]], [[1.0, None], [1.0, 2.0]]):
        with pytest.raises(ValueError, match=r"'pair': 1 values are missing \(null\)"):
            arrays_of(pa.table({"n": [1, 2], "pair": missing}), COLUMNS)


def test_a_rank_takes_the_gpu_of_its_task_or_of_its_local_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DEVICES, raising=False)
    assert [gpu_index(rank, 2) for rank in range(4)] == [0, 1, 0, 1]
    monkeypatch.setenv(DEVICES, "3,1")
    assert gpu_index(0, 4) == 3
    monkeypatch.setenv("HOROVOD_SPARK_USE_LOCAL_RANK_GPU_INDEX", "1")
    assert gpu_index(0, 4) == 0
    monkeypatch.setenv("HOROVOD_SPARK_USE_LOCAL_RANK_GPU_INDEX", "0")
    with pytest.raises(ValueError, match="the GPU '3' to this task, expected 0 to 1"):
        gpu_index(0, 2)


def test_packed_vectors_are_unpacked() -> None:
    packed = [[2.0, 1, 4, 0.5, 0.25, 0, 0], [0.0] * 7, [3.0, 0, 1, 2, 7, 8, 9]]
    made = arrays_of(pa.table({"v": packed}), {"v": Column("vector", True, 5, 3, PACKED)})
    np.testing.assert_array_equal(made["v"], [[0, 0.5, 0, 0, 0.25], [0] * 5, [7, 8, 9, 0, 0]])


def test_numbers_of_all_kinds_and_nested_lists_become_arrays() -> None:
    from decimal import Decimal

    table = pa.table({
        "decimal": [Decimal("1.5"), Decimal("-2.5")],
        "flag": [True, False],
        "nested": [[[1, 2], [3, 4]], [[5, 6], [7, 8]]],
        "fixed": pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2)),
    })  # fmt: skip
    scalar, four, two = (Column("?", False, n, n, NO_CHANGE if n == 1 else ARRAY) for n in (1, 4, 2))
    made = arrays_of(table, {"decimal": scalar, "flag": scalar, "nested": four, "fixed": two})
    assert made["decimal"].tolist() == [1.5, -2.5]
    assert made["flag"].tolist() == [True, False]
    assert made["nested"].tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert made["fixed"].dtype == np.float32


def test_a_transformation_adds_changes_and_removes_columns(tmp_path: Path) -> None:
    def change(frame: Any) -> Any:
        frame["sum"] = [pair.sum() + n for pair, n in zip(frame["pair"], frame["n"], strict=True)]
        frame["pair"] = [2 * pair for pair in frame["pair"]]
        return frame

    changed = transformation(change, [("sum", np.float32, (), False)], ["n"])
    module = ParquetDataModule(
        data(tmp_path / "data", 6),
        None,
        has_val=False,
        train_batch_size=3,
        shuffle=False,
        transform_fn=changed,
        schema_fields=COLUMNS,
    )
    with module as source:
        batch = next(iter(source.train_data()))
    assert batch.keys() == {"pair", "sum"}
    assert batch["sum"].dtype == np.float32
    np.testing.assert_array_equal(batch["sum"], [0, 1, 2])
    np.testing.assert_array_equal(batch["pair"], [[0, 0], [2, -2], [4, -4]])
