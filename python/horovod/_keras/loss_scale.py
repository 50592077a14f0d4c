"""Loss scaling (mixed_float16) that is the same on all ranks.

A LossScaleOptimizer skips the step and halves its scale if a gradient is not finite. Every rank must make the same
decision, so it has to check the reduced gradients: infinities and NaNs survive a sum. Keras itself wraps a distributed
optimizer in one, in compile(). Keras 3's would check this rank's gradients, and if only one rank overflows, the others
would wait for it inside the step; Keras 2's would check this rank's sums while passes are added up. Keras offers no
hook there: its methods are replaced by ones that let the distributed optimizer reduce first. For every other optimizer
they do what they did.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from horovod._keras import private

__all__ = ["reduce_before_scaling", "scales_losses"]

_PATCHED = "_hvd_reduces_first"


def scales_losses(optimizer: Any) -> bool:
    """Whether it is a LossScaleOptimizer."""
    return hasattr(optimizer, "inner_optimizer")


def reduce_before_scaling(base: type) -> None:
    """Makes every LossScaleOptimizer of the Keras package that defines `base` check reduced gradients."""
    for scaling in private.loss_scale_classes(base):
        if _PATCHED in vars(scaling):
            continue
        is_keras_3 = hasattr(scaling, "stateless_apply")
        for replacement in (_apply, _stateless_apply, _scale_loss) if is_keras_3 else (_apply_gradients,):
            name = replacement.__name__[1:]
            setattr(scaling, name, _no_autograph(_method(getattr(scaling, name), replacement)))
        setattr(scaling, _PATCHED, True)


def _method(original: Any, replacement: Any) -> Any:
    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return replacement(original, self, *args, **kwargs)

    return method


def _no_autograph(function: Any) -> Any:
    """Excludes the function from TensorFlow's autograph, if TensorFlow is loaded."""
    tf = sys.modules.get("tensorflow")
    return function if tf is None else tf.autograph.experimental.do_not_convert(function)


def _distributed(scaling: Any) -> Any:
    """The one of the two optimizers that is distributed; None if neither is."""
    return next((one for one in (scaling, scaling.inner_optimizer) if hasattr(one, "_hvd_step")), None)


def _apply(original: Any, self: Any, grads: Any, trainable_variables: Any = None) -> Any:
    distributed = _distributed(self)
    if distributed is None:
        return original(self, grads, trainable_variables)
    variables = private.trainable_variables(self) if trainable_variables is None else list(trainable_variables)
    return distributed._hvd_step(self, grads, variables, lambda final: original(self, final, trainable_variables))


def _stateless_apply(original: Any, self: Any, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
    distributed = _distributed(self)
    if distributed is None:
        return original(self, optimizer_variables, grads, trainable_variables)
    return distributed._hvd_step(
        self,
        grads,
        private.trainable_variables(self),
        lambda final: original(self, optimizer_variables, final, trainable_variables),
    )


def _scale_loss(original: Any, self: Any, loss: Any) -> Any:
    """The first call of Keras' train step, whose gradients are not reduced."""
    distributed = _distributed(self)
    if hasattr(distributed, "_hvd_expect_unreduced"):
        distributed._hvd_expect_unreduced()
    return original(self, loss)


def _apply_gradients(original: Any, self: Any, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
    distributed, apply = _distributed(self), functools.partial(original, self)
    if distributed is None or distributed is self:
        return apply(grads_and_vars, *args, **kwargs)
    return distributed._hvd_apply(apply, self, grads_and_vars, *args, **kwargs)
