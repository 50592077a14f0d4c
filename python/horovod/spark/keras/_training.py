"""The training of a KerasEstimator, on each rank."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import cloudpickle

from horovod.spark.common._loading import LoaderAhead
from horovod.spark.common._reader import Batch
from horovod.spark.common._training import Training
from horovod.spark.common.datamodule import DataModule
from horovod.spark.keras._models import Keras, as_file, inputs_of, labels_of, model_bytes, model_from_bytes

_ARCHIVE = ".keras"


@dataclass(frozen=True)
class KerasTraining:
    """What ranks get: bytes, so that Keras is imported by what reads them.

    Args:
        content: The model, see model_bytes().
        parts: A pickle of Parts.
        label_shapes: As the estimator has them.
        prefetch: Batches that a thread makes ahead.
        checkpoint: The model of the run that goes on, with its optimizer.
    """

    training: Training
    keras: Keras
    content: bytes
    parts: bytes
    label_shapes: Any
    prefetch: int
    checkpoint: bytes | None


@dataclass(frozen=True)
class Parts:
    """What the user has given of Keras, or of functions that may use it; `optimizer` is Keras' serialized form."""

    optimizer: Any
    loss: Any
    loss_weights: Any
    metrics: Any
    custom_objects: dict[str, Any]
    callbacks: list[Any]
    checkpoint_callback: Any

    def compile(self, model: Any, optimizer: Any) -> None:
        """Compiles the model with them, and with `optimizer`."""
        weighted = {"loss_weights": self.loss_weights} if self.loss_weights else {}
        model.compile(optimizer=optimizer, loss=self.loss, metrics=self.metrics or None, **weighted)


def train(told: KerasTraining) -> tuple[dict[str, Any], bytes, float] | None:
    """On each rank of the job. Rank 0 returns the history, the model to keep, and the learning rate of one rank."""
    told.training.show_gpu()
    keras, hvd = told.keras.load(), told.keras.load_hvd()
    hvd.init()
    made = _Rank(told, keras, hvd).run()
    hvd.shutdown()
    return made


class _Rank:
    def __init__(self, told: KerasTraining, keras: Any, hvd: Any) -> None:
        self.told, self.keras, self.hvd = told, keras, hvd
        self.parts: Parts = cloudpickle.loads(told.parts)
        if told.training.random_seed is not None:
            keras.utils.set_random_seed(told.training.random_seed + hvd.rank())
        optimizer = keras.optimizers.deserialize(self.parts.optimizer, custom_objects=self.parts.custom_objects)
        self.rate = float(optimizer.learning_rate)
        self.model = self._resumed() if told.checkpoint else self._begun(optimizer)
        self.model.optimizer.learning_rate = self.rate * hvd.size()

    def _begun(self, optimizer: Any) -> Any:
        model = model_from_bytes(self.told.content, self.parts.custom_objects, self.told.keras.package)
        self.parts.compile(model, self.hvd.DistributedOptimizer(optimizer, **self._options()))
        return model

    def _resumed(self) -> Any:
        """The model of the checkpoint, whose optimizer goes on with its state."""
        assert self.told.checkpoint is not None
        with as_file(self.told.checkpoint) as path:
            model = self.hvd.load_model(path, custom_objects=self.parts.custom_objects, **self._options())
        self.parts.compile(model, model.optimizer)
        return model

    def _options(self) -> dict[str, Any]:
        compression = self.told.training.gradient_compression
        return {} if compression is None else {"compression": compression}

    def run(self) -> tuple[dict[str, Any], bytes, float] | None:
        training, first = self.told.training, self.hvd.rank() == 0
        steps = training.steps_of_epoch(whole=False)
        with (
            training.make_data(self.hvd.rank(), steps, training.val_steps or 0) as data,
            training.store.get_local_output_dir() as folder,
        ):
            endless = map(self._arrays, data.train_data())
            ahead = LoaderAhead(self.told.prefetch, False, None, lambda: endless)
            history = self.model.fit(
                iter(ahead),
                steps_per_epoch=steps,
                epochs=training.epochs,
                callbacks=self._callbacks(folder),
                verbose=2 if first and training.verbose else 0,
                **self._validation(data),
            )
            ahead.close_async_loader()
            if not first:
                return None
            rate = float(self.model.optimizer.learning_rate) / self.hvd.size()
            return _plain(history.history), self._kept(folder), rate

    def _kept(self, folder: str) -> bytes:
        """The model that the user's checkpoint callback has written, else as it is at the end."""
        path = os.path.join(folder, self.told.training.store.checkpoint_filename)
        if self.parts.checkpoint_callback is not None and os.path.exists(path):
            with open(path, "rb") as file:
                return file.read()
        return model_bytes(self.model)

    def _validation(self, data: DataModule) -> dict[str, Any]:
        if not data.has_val:
            return {}
        batches: Any = data.val_data()
        steps: Any = self.told.training.val_steps
        steps = int(steps or getattr(batches, "batches", data.steps_per_epoch_val))
        return {"validation_data": _numbered(self.keras, lambda: map(self._arrays, _again(batches)), steps)}

    def _arrays(self, batch: Batch) -> tuple[Any, ...]:
        training = self.told.training
        inputs = inputs_of(self.model, [batch[name] for name in training.feature_cols])
        labels = labels_of(self.model, [batch[name] for name in training.label_cols], self.told.label_shapes)
        weights = () if training.sample_weight_col is None else (batch[training.sample_weight_col].reshape(-1),)
        return (inputs, labels, *weights)

    def _callbacks(self, folder: str) -> list[Any]:
        """Horovod's, the user's, and on rank 0 what keeps checkpoints and logs."""
        hvd, first, parts = self.hvd.callbacks, self.hvd.rank() == 0, self.parts
        store = self.told.training.store
        boards = [one for one in parts.callbacks if type(one).__name__ == "TensorBoard"]
        users = [one for one in parts.callbacks if one not in boards]
        for one in users:
            if hasattr(one, "initial_lr"):
                one.initial_lr = self.rate * self.hvd.size()
        made = [hvd.BroadcastGlobalVariablesCallback(0), hvd.MetricAverageCallback(), *users]
        if not first:
            return made
        if parts.checkpoint_callback is not None:
            parts.checkpoint_callback.filepath = os.path.join(folder, store.checkpoint_filename + _ARCHIVE)
            made.append(parts.checkpoint_callback)
        for board in boards:
            board.log_dir = os.path.join(folder, store.logs_subdir)
        if store.saving_runs or parts.checkpoint_callback is not None:
            own = parts.checkpoint_callback is None
            made.append(_keeper(self.keras, folder, store, own=own))
        return [*made, *boards, *([_syncer(self.keras, folder, store)] if store.saving_runs else [])]


def _keeper(keras: Any, folder: str, store: Any, *, own: bool) -> Any:
    """Gives the checkpoint of each epoch its name; `own`: writes it, too."""
    written = os.path.join(folder, store.checkpoint_filename + _ARCHIVE)

    class Keeper(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if own:
                self.model.save(written)
            if os.path.exists(written):
                os.replace(written, os.path.join(folder, store.checkpoint_filename))

    return Keeper()


def _syncer(keras: Any, folder: str, store: Any) -> Any:
    """Copies the folder into the store after each epoch."""

    class Syncer(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            store.sync(folder)

        def on_train_end(self, logs: Any = None) -> None:
            store.sync(folder)

    return Syncer()


def _numbered(keras: Any, begin: Callable[[], Iterator[Any]], steps: int) -> Any:
    """The first `steps` of what `begin()` gives, as what Keras asks for batches by number, from 0 in each validation.

    Of a generator it would take some ahead, and leave them out the next time.
    """

    class Numbered(getattr(keras.utils, "PyDataset", None) or keras.utils.Sequence):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self._batches = begin()
            self._at = -1
            self._batch: Any = None

        def __len__(self) -> int:
            return steps

        def __getitem__(self, index: int) -> Any:
            if index < self._at or index == 0 < self._at:
                self._batches, self._at = begin(), -1
            while self._at < index:
                self._batch = next(self._batches)
                self._at += 1
            return self._batch

    return Numbered()


def _again(batches: Iterable[Batch]) -> Iterator[Batch]:
    while True:
        yield from batches


def _plain(history: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {
        name: [float(value) if getattr(value, "ndim", 0) == 0 else value for value in values]
        for name, values in history.items()
    }
