"""Elastic training with keras: what survives when a collective fails or ranks change, and the loop that goes on.

`horovodrun --min-np` starts a job whose ranks come and go; elsewhere the same scripts run on ranks that stay.
"""

from __future__ import annotations

from typing import Any

import keras

from horovod._keras import elastic as _shared
from horovod._keras.backend import load

__all__ = ["CommitStateCallback", "KerasState", "UpdateBatchStateCallback", "UpdateEpochStateCallback", "run"]

CommitStateCallback, UpdateBatchStateCallback, UpdateEpochStateCallback = _shared.make_callbacks(keras, __name__)
KerasState: Any
run: Any
if keras.backend.backend() == "tensorflow":
    from horovod.tensorflow.elastic import TensorFlowKerasState as KerasState
    from horovod.tensorflow.elastic import run
else:
    KerasState, run = _shared.on_keras3(load(keras))
