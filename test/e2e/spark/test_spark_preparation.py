"""What estimators write of a DataFrame, and the parameters that say how."""

from __future__ import annotations

import importlib
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark import SparkContext
from pyspark.ml.linalg import Vectors
from pyspark.sql import DataFrame, SparkSession

from documented import undocumented
from horovod.spark.common.params import EstimatorParams, ModelParams
from horovod.spark.common.store import Store
from horovod.spark.common.util import get_dataset_properties, get_simple_meta_from_parquet, prepare_data

ROWS = 40


@pytest.fixture
def session(spark: SparkContext) -> SparkSession:
    return SparkSession.builder.getOrCreate()


@pytest.fixture
def rows(session: SparkSession) -> DataFrame:
    made = [
        (n, Vectors.sparse(5, {n % 5: float(n)}), Vectors.dense(n, 0.0) if n % 2 else Vectors.sparse(2, {0: n}), [[n, 1], [2, 3]], n % 4 == 0)
        for n in range(ROWS)
    ]  # fmt: skip
    return session.createDataFrame(made, ["n", "sparse", "mixed", "nested", "held_out"])


def read(session: SparkSession, path: str) -> dict[int, Any]:
    return {row["n"]: row for row in session.read.parquet(path).collect()}


def test_columns_are_written_as_ranks_read_them(session: SparkSession, rows: DataFrame, store: Store) -> None:
    how = {"validation": "held_out", "compress_sparse": True, "partitions_per_process": 2}
    with prepare_data(3, store, rows, ["n"], ["sparse", "mixed", "nested"], **how) as index:
        train_rows, val_rows, columns, row_bytes = get_dataset_properties(index)
        assert (train_rows, val_rows) == (30, 10)
        assert row_bytes > 0
        train = read(session, store.get_train_data_path(index))
        val = read(session, store.get_val_data_path(index))
        assert sorted([*train, *val]) == list(range(ROWS))
        assert all(n % 4 == 0 for n in val)
        files = list(Path(store.get_localized_path(store.get_train_data_path(index))).glob("*.parquet"))
        assert 1 < len(files) <= 3
    assert [columns[name].shape for name in ("n", "sparse", "mixed", "nested")] == [1, 5, 2, 4]
    assert [columns[name].intermediate_format for name in ("n", "sparse", "mixed")] == ["nochange", "custom_sparse_format", "array"]
    assert train[7]["sparse"] == [1.0, 2.0, 7.0]  # one value, its place, the value
    assert train[7]["mixed"] == [7.0, 0.0]
    assert train[7]["nested"] == [7, 1, 2, 3]
    again = get_simple_meta_from_parquet(store, ["n"], ["sparse", "mixed", "nested"], dataset_idx=index)
    assert again[:3] == (30, 10, columns)


def test_the_same_rows_are_written_once_and_others_beside_them(rows: DataFrame, store: Store) -> None:
    other = rows.limit(8)
    with prepare_data(2, store, rows, ["n"], ["nested"]) as first:
        written = sorted(Path(store.get_localized_path(store.get_train_data_path(first))).iterdir())
        with prepare_data(2, store, rows, ["n"], ["nested"]) as same, prepare_data(2, store, other, ["n"], ["nested"]) as beside:
            assert same == first != beside
            assert get_dataset_properties(beside)[0] == 8
        assert get_dataset_properties(first)[0] == ROWS
        assert sorted(Path(store.get_localized_path(store.get_train_data_path(first))).iterdir()) == written
    with pytest.raises(ValueError, match=f"dataset_idx={first}: prepare_data"):
        get_dataset_properties(first)
    with prepare_data(2, store, other, ["n"], ["nested"], validation=0.5, random_seed=3) as new:
        assert sum(get_dataset_properties(new)[:2]) == 8
        assert store.exists(store.get_val_data_path(new))
    with prepare_data(2, store, other, ["n"], ["nested"]) as again:
        assert again == new
        assert not store.exists(store.get_val_data_path(again))


def test_threads_that_want_the_same_rows_share_one_writing(rows: DataFrame, store: Store) -> None:
    together = threading.Barrier(3)
    indices = []

    def work() -> None:
        together.wait()
        with prepare_data(2, store, rows, ["n"], ["nested"]) as index:
            indices.append((index, get_dataset_properties(index)[0]))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(indices) == 3
    assert {count for _, count in indices} == {ROWS}


WRONG: list[tuple[list[Any], str]] = [
    ([(1, "a"), (2, "b")], r"column 'x' is of type string, expected numbers, booleans, arrays, vectors"),
    ([(1, [1.0]), (2, [1.0, 2.0])], r"column 'x': values have 1 to 2 elements, .* no uniform shape"),
    ([(1, [1.0]), (2, None)], r"column 'x': 1 values are missing \(null\)"),
    ([(1, [1.0, 2.0]), (2, [1.0, None])], r"column 'x': 1 values are missing \(null\)"),
    ([(1, Vectors.dense(1, 2)), (2, Vectors.dense(1))], r"column 'x': values have 1 to 2 elements"),
]


@pytest.mark.parametrize(("made", "said"), WRONG, ids=[said[:30] for _, said in WRONG])
def test_columns_of_which_no_array_can_be_made_are_named(session: SparkSession, store: Store, made: list[Any], said: str) -> None:
    frame = session.createDataFrame(made, ["n", "x"])
    with pytest.raises(ValueError, match=said), prepare_data(1, store, frame, ["n"], ["x"]):
        pass
    with prepare_data(1, store, frame, ["n"], ["n"]) as index:  # its place is free again
        assert index == 0


def test_names_with_dots_and_features_that_are_labels(session: SparkSession, store: Store) -> None:
    made = [(n, Vectors.sparse(3, {n % 3: 1.0}), n % 2) for n in range(8)]
    frame = session.createDataFrame(made, ["x.n", "x.v", "held.out"])
    how = {"validation": "held.out", "compress_sparse": True}
    with prepare_data(1, store, frame, ["x.v"], ["x.n", "x.v"], **how) as index:
        train_rows, val_rows, columns, _ = get_dataset_properties(index)
        assert (train_rows, val_rows, list(columns)) == (4, 4, ["x.n", "x.v"])
        assert get_simple_meta_from_parquet(store, ["x.v"], ["x.n", "x.v"], dataset_idx=index)[2] == columns


def test_data_of_others_says_by_itself_what_it_is(session: SparkSession, store: Store) -> None:
    with pytest.raises(ValueError, match="no Parquet data at file:///"):
        get_simple_meta_from_parquet(store, ["y"], ["x"])
    session.createDataFrame([(1.0, [1, 2, 3], "a")], ["y", "x", "text"]).write.parquet(store.get_train_data_path())
    rows, val_rows, columns, _ = get_simple_meta_from_parquet(store, ["y"], ["x"])
    assert (rows, val_rows) == (1, 0)
    assert (columns["x"].shape, columns["x"].spark_data_type) == (3, "array<bigint>")
    assert (columns["y"].is_scalar, columns["y"].spark_data_type) == (True, "double")
    with pytest.raises(ValueError, match="no column z; there are y, x, text"):
        get_simple_meta_from_parquet(store, ["z"], ["x"])
    with pytest.raises(ValueError, match="column 'text' is of type string"):
        get_simple_meta_from_parquet(store, ["y"], ["text"])


VALUES: list[tuple[str, Any, str]] = [
    ("num_proc", 0, r"num_proc: 0, expected a whole number of 1 or more"),
    ("partitions_per_process", -1, r"partitions_per_process: -1, expected a whole number"),
    ("validation", 1.0, r"validation: 1.0, expected a fraction from 0 to below 1, or the name of a column"),
    ("validation", -0.1, r"validation: -0.1, expected a fraction"),
    ("feature_cols", "x", r"feature_cols: 'x', expected a list of names"),
    ("label_cols", ["a", "a"], r"label_cols: \['a', 'a'\], expected names of columns that differ"),
    ("shuffle", "yes", r"shuffle: 'yes', expected True or False"),
    ("reader_pool_type", "fork", r"reader_pool_type: 'fork', expected 'thread', 'process' or 'dummy'"),
    ("transformation_fn", 3, r"transformation_fn: 3, expected a function"),
]


@pytest.mark.parametrize(("name", "value", "said"), VALUES)
def test_a_wrong_value_is_named(spark: SparkContext, name: str, value: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        EstimatorParams(**{name: value})
    with pytest.raises(ValueError, match=said):
        getattr(EstimatorParams(), "set" + "".join(word.capitalize() for word in name.split("_")))(value)


def test_parameters_have_setters_getters_and_defaults(spark: SparkContext) -> None:
    params = EstimatorParams(batch_size=np.int64(8), epochs=None)
    assert (params.getBatchSize(), params.getEpochs(), params.getShuffle()) == (8, 1, True)
    assert params.setEpochs(3).setTrainReaderNumWorker(4).setShufflingBufferSize(9).getEpochs() == 3
    assert (params.getTrainReaderNumWorkers(), params.getShuffleBufferSize()) == (4, 9)
    assert params.setEpochs(None).getEpochs() == 1
    assert ModelParams().setLabelColoumns(["y"]).getLabelColumns() == ["y"]
    with pytest.raises(TypeError, match=r"EstimatorParams: there is no argument 'batchsize'; did you mean batch_size\?"):
        EstimatorParams(batchsize=3)


def test_help_answers_for_every_public_name() -> None:
    frameworks = ("torch", "keras", "lightning")
    names = [f"horovod.spark.common.{name}" for name in ("datamodule", "estimator", "params", "util")]
    names += [f"horovod.spark.{name}" for name in frameworks]
    assert undocumented(*map(importlib.import_module, names)) == []
