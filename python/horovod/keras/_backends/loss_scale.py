"""Loss scaling (mixed_float16) that stays the same on all ranks.

A LossScaleOptimizer skips the step and halves its scale when a gradient is not finite. All ranks must decide alike, so
it has to look at the reduced gradients: infinities and NaNs survive a sum. Keras wraps one around the optimizer by
itself, in compile(), and offers no hook there: its two ways to apply gradients are replaced by ones that reduce first
when the optimizer inside is a distributed one, and otherwise do what they did.
"""

from __future__ import annotations

import functools
from typing import Any

import keras

__all__ = ["is_loss_scale", "reduce_before_scaling"]

_PATCHED = "_hvd_reduces_first"


def is_loss_scale(optimizer: Any) -> bool:
    return isinstance(optimizer, keras.optimizers.LossScaleOptimizer)


def reduce_before_scaling() -> None:
    """Makes every LossScaleOptimizer decide by the gradients of all ranks. Does nothing the second time."""
    scaling: Any = keras.optimizers.LossScaleOptimizer
    if _PATCHED in scaling.__dict__:
        return
    plain_apply, plain_stateless_apply = scaling.apply, scaling.stateless_apply

    @functools.wraps(plain_apply)
    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> None:
        inner = self.inner_optimizer
        if hasattr(inner, "_hvd_apply"):
            inner._hvd_apply(functools.partial(plain_apply, self), self, grads, trainable_variables)
        else:
            plain_apply(self, grads, trainable_variables)

    @functools.wraps(plain_stateless_apply)
    def stateless_apply(self: Any, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
        inner, plain = self.inner_optimizer, functools.partial(plain_stateless_apply, self)
        if hasattr(inner, "_hvd_stateless_apply"):
            return inner._hvd_stateless_apply(plain, self, optimizer_variables, grads, trainable_variables)
        return plain(optimizer_variables, grads, trainable_variables)

    scaling.apply, scaling.stateless_apply = apply, stateless_apply
    setattr(scaling, _PATCHED, True)
