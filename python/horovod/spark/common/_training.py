"""What the ranks of an estimator's training are told, whatever the framework."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from horovod import _env
from horovod.spark.common._columns import Columns
from horovod.spark.common._preparation import steps_of_epoch
from horovod.spark.common._store_base import RemoteStore
from horovod.spark.common.datamodule import DataModule, ParquetDataModule, transformation
from horovod.spark.task import get_available_devices

if TYPE_CHECKING:
    from horovod.spark.common.params import EstimatorParams


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
    def of(
        estimator: EstimatorParams,
        columns: Columns,
        rows: int,
        val_rows: int,
        ranks: int,
        run_id: str,
        index: int | None,
    ) -> Training:
        """What `estimator` says, for the data set of number `index`."""
        value = estimator.value
        store = value("store").to_remote(run_id, index)
        has_val = bool(value("validation")) or val_rows > 0
        return Training(
            store=store,
            run_id=run_id,
            columns=columns,
            feature_cols=tuple(value("feature_cols")),
            label_cols=tuple(value("label_cols")),
            sample_weight_col=value("sample_weight_col"),
            categorical_cols=tuple(value("categorical_cols") or ()),
            rows=rows,
            val_rows=val_rows,
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
                    "schema_fields": columns,
                    "storage_options": value("store").storage_options,
                    "verbose": value("verbose") >= 2,
                    "window": value("shuffle_buffer_size"),
                    "random_seed": value("random_seed"),
                    "train_workers": _workers(estimator, "train_reader_num_workers"),
                    "val_workers": _workers(estimator, "val_reader_num_workers"),
                },
                (
                    value("transformation_fn"),
                    value("transformation_edit_fields"),
                    value("transformation_removed_fields"),
                ),
            ),
        )

    def steps_of_epoch(self, *, whole: bool) -> int:
        """Batches of an epoch on each rank; `whole`: only full ones, where `steps` does not say it."""
        return self.steps or steps_of_epoch(self.rows, self.batch_size, self.ranks, whole=whole)

    def show_gpu(self) -> None:
        """Shows frameworks the GPU of this rank alone, or none; it has to be done before they look."""
        index = self.device_index(int(_env.get("HOROVOD_LOCAL_RANK") or 0))
        _env.apply({"CUDA_VISIBLE_DEVICES": str(index) if self.use_gpu else ""})

    def device_index(self, local_rank: int) -> int:
        """The number of this rank's GPU: that which Spark has assigned to its task, else that of its local rank."""
        assigned = get_available_devices()
        return int(assigned[0]) if assigned else local_rank


@dataclass(frozen=True)
class _Data:
    kind: Any
    arguments: dict[str, Any]
    changes: tuple[Any, Any, Any]

    def __call__(self, rank: int, steps: int, val_steps: int) -> DataModule:
        made: DataModule = self.kind(
            **self.arguments,
            transform_fn=transformation(*self.changes),
            cur_shard=rank,
            steps_per_epoch_train=steps,
            steps_per_epoch_val=val_steps,
        )
        return made


def _workers(estimator: EstimatorParams, name: str) -> int:
    return 0 if estimator.value("reader_pool_type") == "dummy" else int(estimator.value(name))
