"""Where jobs on Spark keep data, checkpoints and logs.

    store = Store.create("/shared/experiments")
    checkpoint = store.get_checkpoint_path("run1")    # file:///shared/experiments/runs/run1/checkpoint
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlparse

from horovod.spark.common._filesystem_store import FilesystemStore
from horovod.spark.common._packages import imported
from horovod.spark.common._store_base import Store

__all__ = ["DBFSLocalStore", "FilesystemStore", "HDFSStore", "LocalStore", "Store"]


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
