"""Where jobs on Spark keep data, checkpoints and logs.

    store = Store.create("/shared/experiments")
    checkpoint = store.get_checkpoint_path("run1")    # file:///shared/experiments/runs/run1/checkpoint
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse

from horovod import _env
from horovod.spark.common._packages import imported
from horovod.spark.common._store_paths import StorePaths

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

__all__ = ["DBFSLocalStore", "FilesystemStore", "HDFSStore", "LocalStore", "Store"]


class Store(StorePaths):
    """Paths of data sets, runs, checkpoints and logs. They are full paths, with the scheme of the store.

    Args:
        prefix_path: Where all lies that no other argument names.
        train_path: Of the training data; `val_path` and `test_path` are those of the other data, `runs_path` that of
            the folder with one folder for each run.
        save_runs: Whether checkpoints and logs of runs are kept.
        checkpoint_filename: In a run's folder; default: "checkpoint".
    """

    @staticmethod
    def create(prefix_path: str, *args: Any, **kwargs: Any) -> FilesystemStore:
        """The store for `prefix_path`: with hdfs:// a HDFSStore, on Databricks for DBFS a DBFSLocalStore, all else a
        FilesystemStore; `args` and `kwargs` are for it. ValueError: no path, or one that the store cannot have."""
        if not prefix_path:
            raise ValueError(f"Store.create: prefix_path={prefix_path!r}, expected a path")
        if HDFSStore.matches(prefix_path):
            return HDFSStore(prefix_path, *args, **kwargs)
        if _env.get("DATABRICKS_RUNTIME_VERSION") and DBFSLocalStore.matches(prefix_path):
            return DBFSLocalStore(prefix_path, *args, **kwargs)
        return FilesystemStore(prefix_path, *args, **kwargs)


class FilesystemStore(Store):
    """A store in a file system of fsspec. A path without a scheme is one of this host, which all hosts have to share.

    Args:
        storage_options: For the file system, as fsspec takes them. The other arguments are those of Store.
    """

    def __init__(
        self,
        prefix_path: str,
        train_path: str | None = None,
        val_path: str | None = None,
        test_path: str | None = None,
        runs_path: str | None = None,
        save_runs: bool = True,
        storage_options: Mapping[str, Any] | None = None,
        checkpoint_filename: str | None = None,
    ) -> None:
        self.storage_options = dict(storage_options or {})
        super().__init__(prefix_path, train_path, val_path, test_path, runs_path, save_runs, checkpoint_filename)
        self._fs: AbstractFileSystem | None = None

    @property
    def fs(self) -> AbstractFileSystem:
        """The file system, made at its first use. ImportError: fsspec, or what it needs for the scheme, is missing."""
        if self._fs is None:
            self._fs = self._make_fs()
        return self._fs

    def _make_fs(self) -> AbstractFileSystem:
        core = imported("fsspec.core", type(self).__name__)
        return core.url_to_fs(self.prefix_path, **self.storage_options)[0]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_fs": None}  # made anew where it arrives

    def get_full_path(self, path: str) -> str:
        """The path with a scheme; without one it is a file of this host."""
        return path if "://" in path else f"file://{path}"

    def get_localized_path(self, path: str) -> str:
        """The path as programs on this host open it: without file://; others stay as they are."""
        return path.removeprefix("file://")

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder `path`."""
        return bool(self.fs.exists(self.get_full_path(path)))

    def read(self, path: str) -> bytes:
        """What the file `path` holds. FileNotFoundError if there is none."""
        with self.fs.open(self.get_full_path(path), "rb") as file:
            content: bytes = file.read()
        return content

    def size(self, path: str) -> int:
        """Bytes of the files at `path` and below."""
        return int(self.fs.du(self.get_full_path(path)))

    def delete(self, path: str) -> None:
        """Deletes the file or the folder `path` with all that is in it, if it is there."""
        if self.exists(path):
            self.fs.rm(self.get_full_path(path), recursive=True)

    def write_text(self, path: str, text: str) -> None:
        """Writes `text` to the file `path`, anew, and makes its folder."""
        full = self.get_full_path(path)
        self.fs.makedirs(posixpath.dirname(full), exist_ok=True)
        with self.fs.open(full, "w") as file:
            file.write(text)

    def ls(self, path: str) -> list[str]:
        """Full paths of what is in the folder `path`; [] if there is no such folder."""
        full = self.get_full_path(path)
        if not self.fs.exists(full):
            return []
        return [posixpath.join(full, posixpath.basename(entry.rstrip("/"))) for entry in self.fs.ls(full, detail=False)]

    def is_parquet_dataset(self, path: str) -> bool:
        """Whether Parquet data lies at `path`. ImportError: pyarrow is missing."""
        parquet = imported("pyarrow.parquet", "Parquet data")
        try:
            return isinstance(self.get_parquet_dataset(path), parquet.ParquetDataset)
        except (OSError, ValueError):  # ArrowInvalid is a ValueError
            return False

    def get_parquet_dataset(self, path: str) -> Any:
        """The pyarrow.parquet.ParquetDataset at `path`. OSError if nothing is there."""
        parquet = imported("pyarrow.parquet", "Parquet data")
        return parquet.ParquetDataset(self.fs._strip_protocol(self.get_full_path(path)), filesystem=self.fs)

    def copy(self, lpath: str, rpath: str, recursive: bool = False) -> None:
        """Copies a file, or with `recursive` what is in the local folder `lpath`, to `rpath` of the store."""
        full = self.get_full_path(rpath)
        if not recursive:
            self.fs.makedirs(posixpath.dirname(full), exist_ok=True)
            self._put(lpath, full)
            return
        for folder, _, names in os.walk(lpath):
            below = os.path.relpath(folder, lpath)
            target = full if below == "." else posixpath.join(full, below.replace(os.sep, "/"))
            self.fs.makedirs(target, exist_ok=True)
            for name in names:
                self._put(os.path.join(folder, name), posixpath.join(target, name))

    def _put(self, lpath: str, full: str) -> None:
        """Copies a file. Of folders of this host nobody sees a part of it; other stores see to that themselves."""
        if not full.startswith("file://"):
            self.fs.put_file(lpath, full)
            return
        self.fs.put_file(lpath, f"{full}.part")
        os.replace(self.get_localized_path(f"{full}.part"), self.get_localized_path(full))

    def sync_fn(self, run_id: str) -> Callable[[str], None]:
        """A function that copies what is in a local folder into that of the run `run_id`."""
        run_path = self.get_run_path(run_id)

        def sync(local_folder: str) -> None:
            self.copy(local_folder, run_path, recursive=True)

        return sync

    def read_serialized_keras_model(self, path: str, model: Any, custom_objects: Any) -> Any:
        """The model of Keras in the checkpoint `path`. `model` does not matter; `custom_objects` are its classes and
        functions by name."""
        from horovod.spark.keras._models import model_from_bytes

        return model_from_bytes(self.read(path), custom_objects)


LocalStore = FilesystemStore  # its old name


class HDFSStore(FilesystemStore):
    """A store in HDFS, by pyarrow and Hadoop's libhdfs.

    Args:
        prefix_path: hdfs://namenode:8020/path, hdfs:///path or /path; with either of the last two Hadoop's
            configuration says where it is.
        host, port: Of the name node, where prefix_path has none.
        user, kerb_ticket: Who asks, and the file of their Kerberos ticket.
        driver: "libhdfs" is all there is.
        extra_conf: More of Hadoop's configuration.
        kwargs: See FilesystemStore.

    Raises:
        ValueError: Another scheme, no path, or another driver.
    """

    def __init__(
        self,
        prefix_path: str,
        host: str | None = None,
        port: int | None = None,
        user: str | None = None,
        kerb_ticket: str | None = None,
        driver: str = "libhdfs",
        extra_conf: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        if driver != "libhdfs":
            raise ValueError(f"HDFSStore: driver={driver!r}, expected 'libhdfs': pyarrow has no other any more")
        place = urlparse(prefix_path)
        if place.scheme not in ("", "hdfs") or not place.path.startswith("/"):
            raise ValueError(f"HDFSStore: {prefix_path!r}, expected hdfs://namenode:port/path, hdfs:///path or /path")
        self._host = host or place.hostname or "default"
        self._port = port or place.port or 0
        self._authority = place.netloc or (f"{host}:{port}" if host and port else host or "")
        self._login = {"user": user, "kerb_ticket": kerb_ticket, "extra_conf": dict(extra_conf or {}) or None}
        super().__init__(prefix_path, **kwargs)
        login = {name: value for name, value in self._login.items() if value is not None}
        self.storage_options = {**login, **self.storage_options}  # for ranks, which open paths by fsspec

    @staticmethod
    def matches(path: str) -> bool:
        """Whether such a path is one of HDFS."""
        return path.startswith("hdfs://")

    def _make_fs(self) -> Any:
        imported("pyarrow.fs", "HDFSStore")
        arrow = imported("fsspec.implementations.arrow", "HDFSStore")
        try:
            return arrow.HadoopFileSystem(host=self._host, port=self._port, **self._login)
        except OSError as error:
            raise OSError(
                f"HDFSStore: no connection to HDFS at {self._host}:{self._port}: {error}. It takes Hadoop's libhdfs.so "
                "and a JVM: see HADOOP_HOME, ARROW_LIBHDFS_DIR and CLASSPATH"
            ) from error

    def get_full_path(self, path: str) -> str:
        return path if "://" in path else f"hdfs://{self._authority}{path}"

    def get_localized_path(self, path: str) -> str:
        """The path without scheme and name node."""
        return urlparse(path).path if self.matches(path) else path

    def sync_fn(self, run_id: str) -> Callable[[str], None]:
        """A function that copies files of a local folder into that of the run `run_id`: those that have changed since
        its last call."""
        run_path = self.get_run_path(run_id)
        copied: dict[str, int] = {}  # modification times in ns, by path below the folder

        def sync(local_folder: str) -> None:
            for folder, _, names in os.walk(local_folder):
                for name in names:
                    path = os.path.join(folder, name)
                    below = os.path.relpath(path, local_folder)
                    modified = os.stat(path).st_mtime_ns
                    if copied.get(below, -1) < modified:
                        self.copy(path, f"{run_path}/{below}")
                        copied[below] = modified

        return sync


class DBFSLocalStore(FilesystemStore):
    """A store in Databricks' file system, by its folder /dbfs on each host.

    Args:
        prefix_path: dbfs:/path, /dbfs/path, file:/dbfs/path or file:///dbfs/path; others are a ValueError.
        args, kwargs: See FilesystemStore. The default checkpoint_filename is "checkpoint.tf".
    """

    _CHECKPOINT = "checkpoint.tf"
    _FORMS = re.compile(r"^(?:dbfs:/|file:///dbfs/|file:/dbfs/|/dbfs/)(?!/)")

    def __init__(self, prefix_path: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(self.normalize_path(prefix_path), *args, **kwargs)

    @staticmethod
    def matches(path: str) -> bool:
        """Whether such a path is one of DBFS."""
        return DBFSLocalStore._FORMS.match(path) is not None

    @staticmethod
    def normalize_path(path: str) -> str:
        """The `path` as one that begins with /dbfs/."""
        if not DBFSLocalStore.matches(path):
            raise ValueError(
                f"DBFSLocalStore: {path!r}, expected dbfs:/path, /dbfs/path, file:/dbfs/path or file:///dbfs/path"
            )
        return DBFSLocalStore._FORMS.sub("/dbfs/", path)
