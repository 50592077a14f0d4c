"""Stores: where things lie, and what a store on this host does."""

from __future__ import annotations

import importlib
import pickle
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def stores() -> Any:
    return importlib.import_module("horovod.spark.common.store")


def test_the_layout_under_a_prefix(stores: Any) -> None:
    store = stores.Store.create("/shared/x")
    assert type(store) is stores.FilesystemStore is stores.LocalStore
    assert isinstance(store, stores.Store)
    root = "file:///shared/x"
    assert store.get_train_data_path() == f"{root}/intermediate_train_data"
    assert store.get_val_data_path(3) == f"{root}/intermediate_val_data.3"
    assert store.get_test_data_path(0) == f"{root}/intermediate_test_data.0"
    assert store.get_run_path("r1") == f"{root}/runs/r1"
    assert store.get_checkpoint_path("r1") == f"{root}/runs/r1/checkpoint"
    assert store.get_logs_path("r1") == f"{root}/runs/r1/logs"
    assert (store.get_checkpoint_filename(), store.get_logs_subdir()) == ("checkpoint", "logs")
    assert store.get_localized_path(root) == "/shared/x"
    assert store.get_data_metadata_path("/data") == "file:///data/_horovod_metadata"

    own = stores.FilesystemStore("s3://b/x", "s3://b/t", runs_path="s3://b/r", save_runs=False, checkpoint_filename="c")
    assert (own.get_train_data_path(), own.get_runs_path()) == ("s3://b/t", "s3://b/r")
    assert own.get_val_data_path() == "s3://b/x/intermediate_val_data"
    assert (own.saving_runs(), own.get_checkpoint_path("r"), own.get_logs_path("r")) == (False, None, None)
    with pytest.raises(ValueError, match="prefix_path='', expected a path"):
        stores.Store.create("")


def test_files_of_a_run_are_copied_and_read(stores: Any, tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    store = stores.Store.create(str(tmp_path / "store"))
    path = store.get_run_path("r1") + "/note.txt"
    assert not store.exists(path)
    assert store.get_checkpoints("r1") == []
    store.write_text(path, "grün")
    assert store.exists(path)
    assert store.read(path) == "grün".encode()
    with pytest.raises(FileNotFoundError):
        store.read(path + "x")
    remote = pickle.loads(pickle.dumps(store)).to_remote("r1", 2)
    assert remote.train_data_path.endswith("/intermediate_train_data.2")
    with remote.get_local_output_dir() as folder:
        local = Path(folder)
        (local / "logs" / "deep").mkdir(parents=True)
        for name in ("b.ckpt", "a.ckpt", "logs/deep/events"):
            (local / name).write_text(name)
        remote.sync(folder)
        remote.sync(folder)
    assert not local.exists()
    run = tmp_path / "store" / "runs" / "r1"
    found = sorted(str(file.relative_to(run)) for file in run.rglob("*") if file.is_file())
    assert found == ["a.ckpt", "b.ckpt", "logs/deep/events", "note.txt"]
    assert store.get_checkpoints("r1") == [f"{store.get_run_path('r1')}/{name}.ckpt" for name in "ab"]
    store.copy(str(run / "a.ckpt"), str(tmp_path / "elsewhere" / "c"))
    assert (tmp_path / "elsewhere" / "c").read_text() == "a.ckpt"


def test_parquet_data_is_recognised(stores: Any, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = importlib.import_module("pyarrow.parquet")
    store = stores.Store.create(str(tmp_path))
    data = tmp_path / "intermediate_train_data"
    assert not store.is_parquet_dataset(store.get_train_data_path())
    data.mkdir()
    parquet.write_table(pyarrow.table({"x": [1, 2, 3]}), data / "part-0.parquet")
    assert store.is_parquet_dataset(store.get_train_data_path())
    assert store.get_parquet_dataset(store.get_train_data_path()).read().column("x").to_pylist() == [1, 2, 3]
    (data / "part-0.parquet").write_text("no Parquet")
    assert not store.is_parquet_dataset(store.get_train_data_path())


def test_paths_of_hdfs(stores: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    store = stores.Store.create("hdfs://nn:8020/user/x")
    assert type(store) is stores.HDFSStore
    assert store.get_run_path("r") == "hdfs://nn:8020/user/x/runs/r"
    assert store.get_localized_path("hdfs://nn:8020/user/x") == "/user/x"
    assert stores.HDFSStore("/user/x", host="nn", port=1).get_full_path("/y") == "hdfs://nn:1/y"
    assert stores.HDFSStore("hdfs:///user/x").get_runs_path() == "hdfs:///user/x/runs"
    login = stores.HDFSStore("hdfs://nn:1/x", user="me", kerb_ticket="/t", storage_options={"replication": 2})
    assert login.storage_options == {"user": "me", "kerb_ticket": "/t", "replication": 2}  # by which ranks read
    for bad in ("s3://b/x", "", "hdfs://nn:8020", "user/x"):
        with pytest.raises(ValueError, match=r"expected hdfs://namenode:port/path, hdfs:///path or /path"):
            stores.HDFSStore(bad)
    with pytest.raises(ValueError, match="driver='libhdfs3', expected 'libhdfs'"):
        stores.HDFSStore("/x", driver="libhdfs3")
    # What has not changed is not sent again.
    sent: list[str] = []
    monkeypatch.setattr(store, "copy", lambda path, target: sent.append(target))
    (tmp_path / "logs").mkdir()
    for name in ("a", "logs/b"):
        (tmp_path / name).write_text("1")
    sync = store.sync_fn("r")
    sync(str(tmp_path))
    assert sorted(sent) == ["hdfs://nn:8020/user/x/runs/r/a", "hdfs://nn:8020/user/x/runs/r/logs/b"]
    sync(str(tmp_path))
    assert len(sent) == 2


def test_paths_of_databricks(stores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in ("dbfs:/ml/x", "/dbfs/ml/x", "file:/dbfs/ml/x", "file:///dbfs/ml/x"):
        store = stores.DBFSLocalStore(path)
        assert store.get_checkpoint_path("r") == "file:///dbfs/ml/x/runs/r/checkpoint.tf"
        assert stores.DBFSLocalStore.normalize_path(path) == "/dbfs/ml/x"
        assert type(stores.Store.create(path)) is stores.FilesystemStore
        monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "15.4")
        assert type(stores.Store.create(path)) is stores.DBFSLocalStore
        monkeypatch.delenv("DATABRICKS_RUNTIME_VERSION")
    with pytest.raises(ValueError, match="'/tmp/x', expected dbfs:/path"):
        stores.DBFSLocalStore("/tmp/x")


def test_what_is_missing_is_named(stores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(importlib.import_module("sys").modules, "fsspec.core", None)
    with pytest.raises(ImportError, match="FilesystemStore needs fsspec: `pip install fsspec`"):
        stores.Store.create("/shared/x").exists("/shared/x")
