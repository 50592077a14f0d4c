"""Elastic training with tf.keras: what survives when a collective fails or ranks change, and the loop that goes on.

`horovodrun --min-np` starts a job whose ranks come and go; elsewhere the same scripts run on ranks that stay.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod._keras import elastic as _shared
from horovod.tensorflow.elastic import TensorFlowKerasState, run

__all__ = ["CommitStateCallback", "KerasState", "UpdateBatchStateCallback", "UpdateEpochStateCallback", "run"]

CommitStateCallback, UpdateBatchStateCallback, UpdateEpochStateCallback = _shared.make_callbacks(tf.keras, __name__)


class KerasState(TensorFlowKerasState):
    """A tf.keras model, its optimizer, and any other objects as attributes.

    `optimizer`: the model's own where none is given. ValueError for a model that is not built.
    """

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        super().__init__(model, optimizer, backend=tf.keras.backend, **kwargs)
