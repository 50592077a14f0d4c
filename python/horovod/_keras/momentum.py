"""A momentum that may change between the steps of fit().

Keras keeps momentum as a Python number, which becomes a constant when the train step is traced: what a callback sets
later has no effect. Here it is put in a variable that the traced step reads, behind an object that is still the float
that Keras compares, checks and saves.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod._keras import private
from horovod._keras.learning_rate import with_momentum

__all__ = ["Momentum", "make_changeable"]


class Momentum(float):
    """A float for Python, the value of a variable for TensorFlow. Copies and saved configurations are plain floats."""

    dtype = "float32"  # for keras.ops, which promotes by it
    _variable: Any

    def __new__(cls, value: float, variable: Any) -> Momentum:
        made = super().__new__(cls, value)
        made._variable = variable
        return made

    def changed(self, value: float) -> Momentum:
        """The same momentum with another value, from the next step on."""
        self._variable.assign(value)
        return Momentum(value, self._variable)

    def __tf_tensor__(self, dtype: Any = None, name: str | None = None) -> Any:
        del name
        value = self._variable.read_value()
        return value if dtype is None else tf.cast(value, dtype)

    def __reduce__(self) -> Any:
        return float, (float(self),)


def make_changeable(model: Any) -> None:
    """Puts the momentum of the model's optimizer in a variable. A train step that was traced before is traced again."""
    optimizer = with_momentum(getattr(model, "optimizer", None))
    momentum: Any = getattr(optimizer, "momentum", None)
    if not isinstance(momentum, (int, float)) or isinstance(momentum, Momentum) or momentum == 0:
        return
    variable = tf.Variable(float(momentum), trainable=False, dtype=tf.float32, name="momentum")
    optimizer.momentum = Momentum(float(momentum), variable)
    private.trace_again(model)  # it may have been traced with a constant
