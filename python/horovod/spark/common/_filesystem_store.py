"""A store on whatever fsspec reaches: folders of this host, s3://, gs://, abfs://."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from horovod.spark.common._packages import imported
from horovod.spark.common._store_base import Store

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem


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
