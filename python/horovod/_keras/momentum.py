"""A momentum that may change between the steps of fit().

Keras stores momentum as a Python number, which becomes a constant when the train step is traced: a value that a
callback sets later has no effect. Here a variable holds it, which the traced step reads, and a float subclass refers to
the variable, because Keras compares, checks and saves a float.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod._keras import private
from horovod._keras.learning_rate import with_momentum

__all__ = ["Momentum", "make_changeable"]


class Momentum(float):
    """A float for Python, the value of a variable for TensorFlow. Copies and saved configurations are of type float."""

    dtype = "float32"  # for keras.ops, which promotes by it
    _variable: Any

    def __new__(cls, value: float, variable: Any) -> Momentum:
        made = super().__new__(cls, value)
        made._variable = variable
        return made

    def changed(self, value: float) -> Momentum:
        """Assigns another value, which the next step uses; returns the new momentum."""
        self._variable.assign(value)
        return Momentum(value, self._variable)

    def __tf_tensor__(self, dtype: Any = None, name: str | None = None) -> Any:
        del name
        value = self._variable.read_value()
        return value if dtype is None else tf.cast(value, dtype)

    def __reduce__(self) -> Any:
        return float, (float(self),)


def make_changeable(model: Any) -> None:
    """Moves the momentum of the model's optimizer to a variable. A traced train step is traced again."""
    optimizer = with_momentum(getattr(model, "optimizer", None))
    momentum: Any = getattr(optimizer, "momentum", None)
    if not isinstance(momentum, (int, float)) or isinstance(momentum, Momentum) or momentum == 0:
        return
    variable = tf.Variable(float(momentum), trainable=False, dtype=tf.float32, name="momentum")
    optimizer.momentum = Momentum(float(momentum), variable)
    private.trace_again(model)  # it may have been traced with a constant
