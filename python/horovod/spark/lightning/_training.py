"""The training of Lightning's estimator, on each rank."""

from __future__ import annotations

import importlib
import io
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import cloudpickle
import numpy as np
import torch

import horovod.torch as hvd
from horovod.spark.common._loading import LoaderAhead
from horovod.spark.common._reader import Batch
from horovod.spark.common._training import Training
from horovod.spark.common.datamodule import DataModule
from horovod.spark.torch._objects import Shapes, float_type, reshaped, state_bytes


@dataclass(frozen=True)
class LightningTraining:
    """What ranks get.

    Args:
        package: "pytorch_lightning" or "lightning.pytorch".
        content: A pickle of a function that returns the LightningModule and callbacks.
        trainer: Arguments of the Trainer.
        queue_sizes: Batches of training, and of validation, that a thread makes ahead.
        checkpoint: That of the run which goes on.
    """

    training: Training
    package: str
    content: bytes
    input_shapes: Shapes
    label_shapes: Shapes
    trainer: dict[str, Any]
    terminate_on_nan: bool
    queue_sizes: tuple[int, int]
    debug_data_loader: bool
    checkpoint: bytes | None


def train(told: LightningTraining) -> tuple[list[dict[str, Any]], bytes] | None:
    """On each rank of the job. Rank 0 returns the history, and the state of the module to keep."""
    told.training.show_gpu()
    lightning = importlib.import_module(told.package)
    hvd.init()
    made = _Rank(told, lightning).run()
    hvd.shutdown()
    return made


class _Rank:
    def __init__(self, told: LightningTraining, lightning: Any) -> None:
        self.told = told
        self.lightning = lightning
        if told.training.random_seed is not None:
            torch.manual_seed(told.training.random_seed + hvd.rank())
        make: Callable[[Any], tuple[Any, list[Any]]] = cloudpickle.loads(told.content)
        self.module, self.callbacks = make(lightning)
        self.kind = float_type(self.module)

    def run(self) -> tuple[list[dict[str, Any]], bytes] | None:
        training = self.told.training
        given = self.told.trainer
        steps = _limited(training.steps_of_epoch(whole=True), given.pop("limit_train_batches", None))
        self.callbacks += _listed(given.pop("callbacks", None))
        val_steps = _limited(training.val_steps or _batches(training), given.pop("limit_val_batches", None))
        with (
            training.store.get_local_output_dir() as folder,
            training.store.get_local_output_dir() as of_before,
            training.make_data(hvd.rank(), steps, val_steps) as data,
        ):
            loaders = self._loaders(data, steps, val_steps)
            history: list[dict[str, Any]] = []
            trainer = self._trainer(folder, history)
            try:
                trainer.fit(self.module, *loaders, ckpt_path=self._resumed(of_before))
            finally:
                for loader in loaders:
                    loader.close_async_loader()
            return (history, self._kept()) if hvd.rank() == 0 else None

    def _loaders(self, data: DataModule, steps: int, val_steps: int) -> list[LoaderAhead]:
        told = self.told
        train_size, val_size = told.queue_sizes
        endless = map(self._tensors, data.train_data())
        loaders = [LoaderAhead(train_size, told.debug_data_loader, steps, lambda: endless)]
        if data.has_val and val_steps > 0:
            batches = data.val_data()  # ranks may have one more or less: all take as many, from the begin again
            again = lambda: map(self._tensors, (batch for _ in count() for batch in batches))  # noqa: E731
            loaders.append(LoaderAhead(val_size, told.debug_data_loader, val_steps, again))
        return loaders

    def _tensors(self, batch: Batch) -> dict[str, torch.Tensor]:
        training = self.told.training
        tensors = {}
        for name, array in batch.items():
            tensor = torch.from_numpy(np.ascontiguousarray(array))
            if tensor.is_floating_point() or (name in training.feature_cols and name not in training.categorical_cols):
                tensor = tensor.to(self.kind)
            elif name in training.label_cols:
                tensor = tensor.long()
            for shapes, names in (
                (self.told.input_shapes, training.feature_cols),
                (self.told.label_shapes, training.label_cols),
            ):
                if shapes and name in names:
                    tensor = reshaped(tensor, shapes[names.index(name)])
            tensors[name] = tensor
        return tensors

    def _trainer(self, folder: str, history: list[dict[str, Any]]) -> Any:
        training, told = self.told.training, self.told
        strategy = importlib.import_module("horovod.spark.lightning._strategy").ScalingStrategy
        uses_gpu = training.use_gpu and torch.cuda.is_available()
        own = _keeper(self.lightning, training, folder, history, nan_ends=told.terminate_on_nan)
        self._give_folder(folder)
        arguments = {
            "strategy": strategy(compression=training.gradient_compression or hvd.Compression.none),
            "accelerator": "gpu" if uses_gpu else "cpu",
            "devices": 1,
            "max_epochs": training.epochs + self._epochs_done(),
            "accumulate_grad_batches": training.backward_passes_per_step,
            "callbacks": [*self.callbacks, own],
            "default_root_dir": folder,
            "enable_checkpointing": any(True for _ in self._checkpoints()),
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "num_sanity_val_steps": 0,
            "use_distributed_sampler": False,
            "logger": False,
        }
        return self.lightning.Trainer(**{**arguments, **told.trainer})

    def _checkpoints(self) -> Iterator[Any]:
        kind = self.lightning.callbacks.ModelCheckpoint
        return (callback for callback in self.callbacks if isinstance(callback, kind))

    def _give_folder(self, folder: str) -> None:
        for callback in self._checkpoints():
            if callback.dirpath is None:
                callback.dirpath = folder

    def _epochs_done(self) -> int:
        """Those of the checkpoint from which the run goes on, for `epochs` more."""
        content = self.told.checkpoint
        return 0 if content is None else int(torch.load(io.BytesIO(content), weights_only=True)["epoch"]) + 1

    def _resumed(self, folder: str) -> str | None:
        """Where that checkpoint is."""
        if self.told.checkpoint is None:
            return None
        path = os.path.join(folder, "resumed.ckpt")
        with open(path, "wb") as file:
            file.write(self.told.checkpoint)
        return path

    def _kept(self) -> bytes:
        """The state of the best model that a ModelCheckpoint has written, else of the last."""
        paths = [path for callback in self._checkpoints() if os.path.exists(path := callback.best_model_path)]
        # This rank has written the file.
        state = torch.load(paths[0], map_location="cpu", weights_only=False)["state_dict"] if paths else None
        return state_bytes(state or self.module.state_dict(), {})


def _listed(callbacks: Any) -> list[Any]:
    return [] if callbacks is None else list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks]


def _limited(batches: int, limit: int | float | None) -> int:
    """As many as Lightning's limit_..._batches says: a number, or with a float a fraction."""
    if limit is None:
        return batches
    return min(batches, limit if isinstance(limit, int) else int(batches * limit))


def _batches(training: Training) -> int:
    """Batches of a validation, as many on each rank."""
    of_rank = math.ceil(training.val_rows / training.ranks)
    return math.ceil(of_rank / training.val_batch_size)


def _keeper(lightning: Any, training: Training, folder: str, history: list[dict[str, Any]], *, nan_ends: bool) -> Any:
    """Notes what an epoch has measured, and keeps its checkpoint in the store."""
    store = training.store

    class Keeper(lightning.Callback):  # type: ignore[misc]
        own = False  # whether the checkpoint that is made is the store's

        def on_save_checkpoint(self, trainer: Any, module: Any, checkpoint: dict[str, Any]) -> None:
            # Who goes on has the module, with its hyperparameters; without them tensors and plain values are left.
            if self.own:
                checkpoint.pop("hyper_parameters", None)

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
            loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
            if nan_ends and isinstance(loss, torch.Tensor) and not torch.isfinite(loss).all():
                raise ValueError(
                    f"terminate_on_nan: the loss of batch {index} of epoch {trainer.current_epoch} is {loss}"
                )

        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
            history.append({"epoch": trainer.current_epoch, **metrics})
            if training.verbose and hvd.rank() == 0:
                said = ", ".join(f"{name} {value:.6g}" for name, value in metrics.items())
                print(f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}: {said}", flush=True)
            if store.saving_runs:
                self.own = True
                trainer.save_checkpoint(os.path.join(folder, store.checkpoint_filename))
                self.own = False
                if hvd.rank() == 0:
                    store.sync(folder)

    return Keeper()
