"""The callbacks for tf.keras."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod._keras import callbacks as _shared

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]

_Callback: Any = tf.keras.callbacks.Callback
_ModelCheckpoint: Any = tf.keras.callbacks.ModelCheckpoint


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

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: str | int = "epoch",
    ) -> None:
        super().__init__(
            # Keras 3 refuses other endings here.
            filepath="best.weights.h5" if save_weights_only else "best.keras",
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=save_weights_only,
            mode=mode,
            save_freq=save_freq,
        )
        self.filepath = None
