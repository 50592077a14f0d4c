"""The callbacks for keras."""

from __future__ import annotations

from typing import Any

import keras

from horovod.keras import _backends

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]

_shared: Any = _backends.load(keras)
_Callback: Any = keras.callbacks.Callback
_ModelCheckpoint: Any = keras.callbacks.ModelCheckpoint


class BroadcastGlobalVariablesCallback(_shared.BroadcastGlobalVariables, _Callback):  # type: ignore[misc]
    """Gives all ranks the variables of one, once, after the first batch."""


class MetricAverageCallback(_shared.MetricAverage, _Callback):  # type: ignore[misc]
    """Averages the metrics of an epoch over all ranks; put it before callbacks that use them."""


class LearningRateScheduleCallback(_shared.LearningRateSchedule, _Callback):  # type: ignore[misc]
    """Multiplies the learning rate, each epoch or each batch."""


class LearningRateWarmupCallback(_shared.LearningRateWarmup, _Callback):  # type: ignore[misc]
    """Raises the learning rate to its scaled value over the first epochs."""


class BestModelCheckpoint(_ModelCheckpoint):  # type: ignore[misc]
    """ModelCheckpoint that keeps the best model only; whoever uses it sets `filepath`."""

    filepath: Any

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        mode: str = "auto",
        save_freq: str | int = "epoch",
    ) -> None:
        super().__init__(
            filepath="best.keras",  # Keras checks it
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            mode=mode,
            save_freq=save_freq,
        )
        self.filepath = None

    def on_train_begin(self, logs: Any = None) -> None:
        if self.filepath is None:
            raise ValueError("BestModelCheckpoint: set its attribute `filepath`, which ends in .keras, before fit()")
        super().on_train_begin(logs)
