"""The callbacks for tf.keras."""

from __future__ import annotations

import tensorflow as tf

from horovod._keras import callbacks as _shared
from horovod._keras.tensorflow import BACKEND

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
    BestModelCheckpoint,
) = _shared.make_classes(tf.keras, BACKEND, __name__)
