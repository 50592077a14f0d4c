"""Elastic training with tf.keras: its callbacks. KerasState and run are not built yet (NotImplementedError)."""

from __future__ import annotations

import tensorflow as tf

from horovod._keras import elastic as _shared

__all__ = ["CommitStateCallback", "KerasState", "UpdateBatchStateCallback", "UpdateEpochStateCallback", "run"]

CommitStateCallback, UpdateBatchStateCallback, UpdateEpochStateCallback, KerasState, run = _shared.make_classes(
    tf.keras, __name__
)
