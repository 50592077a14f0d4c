"""Local variables of TensorFlow: those whose gradients stay on this rank."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod._common import local_variables
from horovod._common.local_variables import local_layer_variables
from horovod.tensorflow.util import variable_key

__all__ = ["LocalVariables", "local_layer_variables"]


class LocalVariables(local_variables.LocalVariables):
    """Identifies variables that Keras wraps, and scales sparse gradients."""

    @staticmethod
    def key(variable: Any) -> int:
        return variable_key(variable)

    @staticmethod
    def scaled(grad: Any, size: int) -> Any:
        if not isinstance(grad, tf.IndexedSlices):
            return local_variables.LocalVariables.scaled(grad, size)
        return tf.IndexedSlices(grad.values / size, grad.indices, grad.dense_shape)
