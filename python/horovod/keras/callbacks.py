"""The callbacks for keras."""

from __future__ import annotations

import keras

from horovod._keras import callbacks as _shared
from horovod._keras.backend import load

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]

(
    BroadcastGlobalVariablesCallback,
    MetricAverageCallback,
    LearningRateScheduleCallback,
    LearningRateWarmupCallback,
    _BestModelCheckpoint,
) = _shared.make_classes(keras, load(keras), __name__)


class BestModelCheckpoint(_BestModelCheckpoint):  # type: ignore[misc,valid-type]
    """A ModelCheckpoint that saves only the best model. Set its attribute `filepath` before fit(), else ValueError.

    Arguments as for keras.callbacks.ModelCheckpoint: `monitor`, `verbose`, `mode`, `save_freq`.
    """

    def __init__(
        self, monitor: str = "val_loss", verbose: int = 0, mode: str = "auto", save_freq: str | int = "epoch"
    ) -> None:
        super().__init__(monitor=monitor, verbose=verbose, mode=mode, save_freq=save_freq)
