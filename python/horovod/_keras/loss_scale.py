"""Loss scaling (mixed_float16) that stays the same on all ranks.

A LossScaleOptimizer skips the step and halves its scale when a gradient is not finite. Every rank must come to the same
decision, so it has to look at the reduced gradients: infinities and NaNs survive a sum. Around a distributed optimizer,
which is how Keras 3 itself wraps one in compile(), it would look at this rank's gradients, and a rank that overflows
alone would leave the others waiting for it inside the step. Keras offers no hook there: its apply() is replaced by one
that reduces first, and that does what it did for every other optimizer.
"""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from horovod.tensorflow._collectives import SUM, allreduce
from horovod.tensorflow._local import LocalVariables

_PATCHED = "_hvd_reduces_first"


def loss_scale_class() -> type:
    """Keras 3's LossScaleOptimizer."""
    import keras

    found: type = keras.optimizers.LossScaleOptimizer
    return found


def reduce_before_scaling() -> None:
    """Makes every LossScaleOptimizer of Keras 3 decide by the gradients of all ranks. Does nothing the second time."""
    scaling: Any = loss_scale_class()
    if _PATCHED in scaling.__dict__:
        return
    plain_apply = scaling.apply

    @functools.wraps(plain_apply)
    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> None:
        inner = self.inner_optimizer
        if hasattr(inner, "_hvd_step"):
            inner._hvd_step(functools.partial(plain_apply, self), self, grads, trainable_variables)
        else:
            plain_apply(self, grads, trainable_variables)

    scaling.apply = tf.autograph.experimental.do_not_convert(apply)
    setattr(scaling, _PATCHED, True)


def share_overflow(grads: list[Any], variables: list[Any], local: LocalVariables) -> list[Any]:
    """Makes a local gradient that is not finite on one rank spoil the step on all. All ranks must call it."""
    if not local.any or not local.process_set.included() or (local.process_set.size() or 1) == 1:
        return grads
    own = [grad for grad, of in zip(grads, variables, strict=True) if of in local and grad is not None]
    bad = [tf.reduce_any(~tf.math.is_finite(_values(grad))) for grad in own]
    flag = tf.cast(tf.reduce_any(tf.stack(bad)) if bad else False, tf.float32)
    everywhere = allreduce(flag, op=SUM, name="loss_scale_overflow", process_set=local.process_set)
    return [None if grad is None else _spoiled(grad, everywhere > 0) for grad in grads]


def _values(grad: Any) -> Any:
    return grad.values if isinstance(grad, tf.IndexedSlices) else grad


def _spoiled(grad: Any, is_bad: Any) -> Any:
    """The gradient, or NaNs of its shape."""
    values = _values(grad)
    values = tf.where(is_bad, tf.fill(tf.shape(values), tf.constant(float("nan"), values.dtype)), values)
    return tf.IndexedSlices(values, grad.indices, grad.dense_shape) if isinstance(grad, tf.IndexedSlices) else values
