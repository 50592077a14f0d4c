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

from horovod._keras import private

__all__ = ["reduce_before_scaling", "scales"]

_PATCHED = "_hvd_reduces_first"


def scales(optimizer: Any) -> bool:
    """Whether it scales losses."""
    return hasattr(optimizer, "inner_optimizer")


def reduce_before_scaling(base: type) -> None:
    """Makes every loss scale optimizer of the Keras that has `base` decide by the gradients of all ranks."""
    for scaling in private.loss_scale_classes(base):
        if _PATCHED in vars(scaling):
            continue
        is_keras_3 = hasattr(scaling, "stateless_apply")
        for together in (_apply, _stateless_apply, _scale_loss) if is_keras_3 else (_apply_gradients,):
            name = together.__name__[1:]
            setattr(scaling, name, _unconverted(_replacing(getattr(scaling, name), together)))
        setattr(scaling, _PATCHED, True)


def _replacing(plain: Any, together: Any) -> Any:
    @functools.wraps(plain)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return together(plain, self, *args, **kwargs)

    return method


def _unconverted(function: Any) -> Any:
    """Keeps TensorFlow's autograph from rewriting it."""
    tf = sys.modules.get("tensorflow")
    return function if tf is None else tf.autograph.experimental.do_not_convert(function)


def _distributed(scaling: Any) -> Any:
    """The distributed optimizer of the two, None where there is none."""
    return next((one for one in (scaling, scaling.inner_optimizer) if hasattr(one, "_hvd_step")), None)


def _apply(plain: Any, self: Any, grads: Any, trainable_variables: Any = None) -> Any:
    distributed = _distributed(self)
    if distributed is None:
        return plain(self, grads, trainable_variables)
    variables = private.trainable_variables(self) if trainable_variables is None else list(trainable_variables)
    return distributed._hvd_step(self, grads, variables, lambda final: plain(self, final, trainable_variables))


def _stateless_apply(plain: Any, self: Any, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
    distributed = _distributed(self)
    if distributed is None:
        return plain(self, optimizer_variables, grads, trainable_variables)
    return distributed._hvd_step(
        self,
        grads,
        private.trainable_variables(self),
        lambda final: plain(self, optimizer_variables, final, trainable_variables),
    )


def _scale_loss(plain: Any, self: Any, loss: Any) -> Any:
    """Keras' train step begins with this, and hands over this rank's gradients."""
    distributed = _distributed(self)
    if hasattr(distributed, "_hvd_expect_unreduced"):
        distributed._hvd_expect_unreduced()
    return plain(self, loss)


def _apply_gradients(plain: Any, self: Any, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
    distributed, apply = _distributed(self), functools.partial(plain, self)
    if distributed is None or distributed is self:
        return apply(grads_and_vars, *args, **kwargs)
    return distributed._hvd_apply(apply, self, grads_and_vars, *args, **kwargs)
