"""Loss scaling (mixed_float16) that stays the same on all ranks.

A LossScaleOptimizer skips the step and halves its scale when a gradient is not finite. Every rank must come to the same
decision, so it has to look at the reduced gradients: infinities and NaNs survive a sum. Around a distributed optimizer,
which is how Keras itself wraps one in compile(), Keras 3's would look at this rank's gradients, and a rank that
overflows alone would leave the others waiting for it inside the step; Keras 2's would look at this rank's sums while
passes are added up. Keras offers no hook there: its method is replaced by one that lets the distributed optimizer go
first, and that does what it did for every other optimizer.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import tensorflow as tf

from horovod.tensorflow._collectives import SUM, allreduce
from horovod.tensorflow._local import LocalVariables

_PATCHED = "_hvd_reduces_first"


def _classes() -> list[tuple[Any, str]]:
    """Every class of loss scale optimizers that tf.keras and keras have, with the name of its method that steps."""
    import keras

    found: dict[Any, str] = {}
    for package in (tf.keras, keras):
        if hasattr(package, "ops"):  # Keras 3
            found[package.optimizers.LossScaleOptimizer] = "apply"
            continue
        # Keras 2 has one for its legacy optimizers, which is public, and one for the others beside it.
        module = sys.modules[package.mixed_precision.LossScaleOptimizer.__module__]
        for name in ("LossScaleOptimizer", "LossScaleOptimizerV3"):
            if hasattr(module, name):
                found[getattr(module, name)] = "apply_gradients"
    return list(found.items())


def scales(optimizer: Any) -> bool:
    """Whether it scales losses."""
    return hasattr(optimizer, "inner_optimizer")


def reduce_before_scaling() -> None:
    """Makes every loss scale optimizer decide by the gradients of all ranks. Does nothing the second time."""
    for scaling, name in _classes():
        if _PATCHED not in scaling.__dict__:
            setattr(scaling, name, _stepping_together(getattr(scaling, name)))
            setattr(scaling, _PATCHED, True)


def _stepping_together(plain_step: Any) -> Any:
    @functools.wraps(plain_step)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        inner = self.inner_optimizer
        if not hasattr(inner, "_hvd_step"):
            return plain_step(self, *args, **kwargs)
        return inner._hvd_step(functools.partial(plain_step, self), self, *args, **kwargs)

    return tf.autograph.experimental.do_not_convert(step)


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
