"""Elastic training with keras: its callbacks. KerasState and run are not built yet (NotImplementedError)."""

from __future__ import annotations

import keras

from horovod._keras import elastic as _shared

__all__ = ["CommitStateCallback", "KerasState", "UpdateBatchStateCallback", "UpdateEpochStateCallback", "run"]

CommitStateCallback, UpdateBatchStateCallback, UpdateEpochStateCallback, KerasState, run = _shared.make_classes(
    keras, __name__
)
