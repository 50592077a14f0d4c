"""What the ranks of an estimator's training are told, whatever the framework."""

from __future__ import annotations

import inspect
import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from horovod import _env
from horovod.spark.common._columns import Columns
from horovod.spark.common._packages import imported
from horovod.spark.common._store_paths import RemoteStore
from horovod.spark.common.datamodule import DataModule, ParquetDataModule, transformation
from horovod.spark.task import get_available_devices

_MORE = ("window", "random_seed", "train_workers", "val_workers")

if TYPE_CHECKING:
    from horovod.spark.common.params import EstimatorParams


@dataclass(frozen=True)
class DataSet:
    """What is trained with: rows and their columns, the number of the data set, and the token that lies beside it; None
    if this process has not written it."""

    rows: int
    val_rows: int
    columns: Columns
    index: int | None
    token: str | None


@dataclass(frozen=True)
class Training:
    """It travels to ranks. Names are those of the estimators' parameters, where those are meant.

    Args:
        columns: All that are read.
        rows, val_rows: How many there are for all ranks.
        steps: Batches of an epoch on each rank, None: as many as the framework makes of the rows.
        val_steps: Batches of a validation on each rank; None: all rows.
        make_data: Makes the DataModule of a rank.
    """

    store: RemoteStore
    run_id: str
    columns: Columns
    feature_cols: tuple[str, ...]
    label_cols: tuple[str, ...]
    sample_weight_col: str | None
    categorical_cols: tuple[str, ...]
    rows: int
    val_rows: int
    ranks: int
    batch_size: int
    val_batch_size: int
    epochs: int
    steps: int | None
    val_steps: int | None
    random_seed: int | None
    use_gpu: bool
    verbose: int
    gradient_compression: Any
    backward_passes_per_step: int
    make_data: Callable[..., DataModule]

    @staticmethod
    def of(estimator: EstimatorParams, data: DataSet, ranks: int, run_id: str) -> Training:
        """What `estimator` says."""
        value = estimator.value
        store = value("store").to_remote(run_id, data.index)
        has_val = bool(value("validation"))
        return Training(
            store=store,
            run_id=run_id,
            columns=data.columns,
            feature_cols=tuple(value("feature_cols")),
            label_cols=tuple(value("label_cols")),
            sample_weight_col=value("sample_weight_col"),
            categorical_cols=tuple(value("categorical_cols") or ()),
            rows=data.rows,
            val_rows=data.val_rows if has_val else 0,
            ranks=ranks,
            batch_size=value("batch_size"),
            val_batch_size=value("val_batch_size") or value("batch_size"),
            epochs=value("epochs"),
            steps=value("train_steps_per_epoch"),
            val_steps=value("validation_steps_per_epoch"),
            random_seed=value("random_seed"),
            use_gpu=value("use_gpu"),
            verbose=value("verbose"),
            gradient_compression=value("gradient_compression"),
            backward_passes_per_step=value("backward_passes_per_step"),
            make_data=_Data(
                value("data_module") or ParquetDataModule,
                {
                    "train_dir": store.train_data_path,
                    "val_dir": store.val_data_path if has_val else None,
                    "num_train_epochs": value("epochs"),
                    "has_val": has_val,
                    "train_batch_size": value("batch_size"),
                    "val_batch_size": value("val_batch_size") or value("batch_size"),
                    "shuffle": value("shuffle"),
                    "inmemory_cache_all": value("inmemory_cache_all"),
                    "shard_count": ranks,
                    "schema_fields": data.columns,
                    "storage_options": value("store").storage_options,
                    "verbose": value("verbose") >= 2,
                    "window": value("shuffle_buffer_size"),
                    "random_seed": value("random_seed"),
                    "train_workers": _workers(estimator, "train_reader_num_workers"),
                    "val_workers": _workers(estimator, "val_reader_num_workers"),
                },
                (value("store").get_data_metadata_path(store.train_data_path), data.token),
                (
                    value("transformation_fn"),
                    value("transformation_edit_fields"),
                    value("transformation_removed_fields"),
                ),
            ),
        )

    def steps_of_epoch(self, *, whole: bool) -> int:
        """Batches of an epoch on each rank; `whole`: only full ones, where `steps` does not say it."""
        exact = self.rows / self.batch_size / self.ranks
        return self.steps or max(1, math.floor(exact) if whole else math.ceil(exact))

    def show_gpu(self) -> None:
        """Shows frameworks the GPU of this rank alone, or none; it has to be done before they look."""
        assigned = _assigned()
        gpu = assigned[0] if assigned else _gpu_of(int(_env.get("HOROVOD_LOCAL_RANK") or 0))
        _env.apply({"CUDA_VISIBLE_DEVICES": gpu if self.use_gpu else ""})


def _assigned() -> list[str]:
    """What Spark has assigned to this task, unless the user wants local ranks to decide."""
    return [] if _env.is_true("HOROVOD_SPARK_USE_LOCAL_RANK_GPU_INDEX") else get_available_devices()


def gpu_index(local_rank: int, count: int) -> int:
    """The number of a rank's GPU among `count`: the one that Spark has assigned to its task, else that of `local_rank`,
    which HOROVOD_SPARK_USE_LOCAL_RANK_GPU_INDEX=1 takes always.
    ValueError: Spark names it otherwise than by a number."""
    assigned = _assigned()
    if not assigned:
        return local_rank % count
    if not assigned[0].isdecimal() or int(assigned[0]) >= count:
        raise ValueError(f"Spark has assigned the GPU {assigned[0]!r} to this task, expected 0 to {count - 1}")
    return int(assigned[0])


def _gpu_of(local_rank: int) -> str:
    """The number of a rank's GPU; where there are fewer than ranks, they share them."""
    try:
        count = len(os.listdir("/proc/driver/nvidia/gpus"))
    except OSError:
        count = 0
    return str(local_rank % count if count else local_rank)


@dataclass(frozen=True)
class _Data:
    kind: Any
    arguments: dict[str, Any]
    written: tuple[str, str | None]  # where metadata lies, and the token in it
    changes: tuple[Any, Any, Any]

    def __call__(self, rank: int, steps: int, val_steps: int) -> DataModule:
        self._check_token()
        made: DataModule = self.kind(
            **_known_to(self.kind, self.arguments),
            transform_fn=transformation(*self.changes),
            cur_shard=rank,
            steps_per_epoch_train=steps,
            steps_per_epoch_val=val_steps,
        )
        return made

    def _check_token(self) -> None:
        """RuntimeError: what lies there is not what this job's driver has written."""
        path, token = self.written
        if token is None:
            return
        fs, plain = imported("fsspec.core", "Parquet data").url_to_fs(path, **self.arguments["storage_options"])
        if json.loads(fs.cat_file(plain))["token"] != token:
            raise RuntimeError(
                f"{self.arguments['train_dir']} was written over by another application: give each a store of its own"
            )


def _known_to(kind: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments; those of _MORE only if `kind` takes them."""
    takes = inspect.signature(kind).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes.values()):
        return arguments
    return {name: value for name, value in arguments.items() if name in takes or name not in _MORE}


def _workers(estimator: EstimatorParams, name: str) -> int:
    return 0 if estimator.value("reader_pool_type") == "dummy" else int(estimator.value(name))
