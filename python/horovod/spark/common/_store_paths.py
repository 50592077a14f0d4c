"""Where things lie in a store: the names below its prefix, and what a rank is told of them."""

from __future__ import annotations

import contextlib
import posixpath
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

_DATA = {"train": "intermediate_train_data", "val": "intermediate_val_data", "test": "intermediate_test_data"}
_RUNS = "runs"
_LOGS = "logs"


@contextlib.contextmanager
def local_output_dir() -> Iterator[str]:
    """A temporary folder of this host."""
    with tempfile.TemporaryDirectory(prefix="hvd-run-") as folder:
        yield folder


@dataclass(frozen=True)
class RemoteStore:
    """What a rank needs to know of a store and of one run; it travels to ranks. Paths are None if no run is saved."""

    train_data_path: str
    val_data_path: str
    test_data_path: str
    saving_runs: bool
    runs_path: str
    run_path: str
    checkpoint_path: str | None
    logs_path: str | None
    checkpoint_filename: str
    logs_subdir: str
    get_local_output_dir: Callable[[], Any]
    sync: Callable[[str], None]


class StorePaths(ABC):
    """The part of Store that only names paths. Arguments are those of Store."""

    _CHECKPOINT = "checkpoint"

    def __init__(
        self,
        prefix_path: str,
        train_path: str | None = None,
        val_path: str | None = None,
        test_path: str | None = None,
        runs_path: str | None = None,
        save_runs: bool = True,
        checkpoint_filename: str | None = None,
    ) -> None:
        self.prefix_path = self.get_full_path(prefix_path)
        given = {"train": train_path, "val": val_path, "test": test_path}
        self._data = {kind: self._full(path, _DATA[kind]) for kind, path in given.items()}
        self._runs = self._full(runs_path, _RUNS)
        self._save_runs = save_runs
        self._checkpoint_filename = checkpoint_filename or self._CHECKPOINT

    def _full(self, given: str | None, default: str) -> str:
        return self.get_full_path(given) if given else posixpath.join(self.prefix_path, default)

    @abstractmethod
    def get_full_path(self, path: str) -> str:
        """The path with the store's scheme."""

    @abstractmethod
    def sync_fn(self, run_id: str) -> Callable[[str], None]:
        """A function that copies what is in a local folder into that of the run `run_id`."""

    @abstractmethod
    def ls(self, path: str) -> list[str]:
        """Full paths of what is in the folder `path`; [] if there is no such folder."""

    def _data_path(self, kind: str, idx: int | None) -> str:
        return self._data[kind] if idx is None else f"{self._data[kind]}.{idx}"

    def get_train_data_path(self, idx: int | None = None) -> str:
        """Where the training data lies; `idx` numbers data sets."""
        return self._data_path("train", idx)

    def get_val_data_path(self, idx: int | None = None) -> str:
        """Where the validation data lies; `idx` numbers data sets."""
        return self._data_path("val", idx)

    def get_test_data_path(self, idx: int | None = None) -> str:
        """Where the test data lies; `idx` numbers data sets."""
        return self._data_path("test", idx)

    def get_data_metadata_path(self, path: str) -> str:
        """Where what is known of the data set at `path` lies: in it, under a name that Parquet's readers leave out."""
        return posixpath.join(self.get_full_path(path), "_horovod_metadata")

    def saving_runs(self) -> bool:
        """Whether checkpoints and logs are kept."""
        return self._save_runs

    def get_runs_path(self) -> str:
        """The folder of all runs."""
        return self._runs

    def get_run_path(self, run_id: str) -> str:
        """The folder of the run `run_id`."""
        return posixpath.join(self._runs, run_id)

    def get_checkpoint_path(self, run_id: str) -> str | None:
        """The checkpoint of the run `run_id`; None if runs are not saved."""
        return posixpath.join(self.get_run_path(run_id), self._checkpoint_filename) if self._save_runs else None

    def get_checkpoints(self, run_id: str, suffix: str = ".ckpt") -> list[str]:
        """The files in the folder of the run `run_id` that end in `suffix`, sorted by name."""
        return sorted(path for path in self.ls(self.get_run_path(run_id)) if path.endswith(suffix))

    def get_logs_path(self, run_id: str) -> str | None:
        """The folder of the logs of the run `run_id`; None if runs are not saved."""
        return posixpath.join(self.get_run_path(run_id), _LOGS) if self._save_runs else None

    def get_checkpoint_filename(self) -> str:
        """The name of a checkpoint in its run's folder."""
        return self._checkpoint_filename

    def get_logs_subdir(self) -> str:
        """The name of the folder for logs in a run's folder."""
        return _LOGS

    def get_local_output_dir_fn(self, run_id: str) -> Callable[[], Any]:
        """A function that makes a temporary folder of this host, a context manager; `run_id` does not matter."""
        return local_output_dir

    def to_remote(self, run_id: str, dataset_idx: int | None = None) -> RemoteStore:
        """What ranks need of this store for the run `run_id`, on the data sets of number `dataset_idx`."""
        return RemoteStore(
            train_data_path=self.get_train_data_path(dataset_idx),
            val_data_path=self.get_val_data_path(dataset_idx),
            test_data_path=self.get_test_data_path(dataset_idx),
            saving_runs=self._save_runs,
            runs_path=self._runs,
            run_path=self.get_run_path(run_id),
            checkpoint_path=self.get_checkpoint_path(run_id),
            logs_path=self.get_logs_path(run_id),
            checkpoint_filename=self._checkpoint_filename,
            logs_subdir=_LOGS,
            get_local_output_dir=self.get_local_output_dir_fn(run_id),
            sync=self.sync_fn(run_id),
        )
