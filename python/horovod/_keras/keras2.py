"""Mixins for optimizers of Keras 2, which reduce in compute_gradients()."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod._keras.optimizer import CallableList, Distributed

__all__ = ["Keras2", "Keras2Legacy"]


class _Keras2(Distributed):
    """In Keras 2, minimize() passes the result of compute_gradients() to apply_gradients()."""

    def _hvd_pairs(self, computed: Any) -> list[tuple[Any, Any]]:
        pairs = list(computed)
        grads = self._hvd_reduced([grad for grad, _ in pairs], [variable for _, variable in pairs])
        return [(grad, variable) for grad, (_, variable) in zip(grads, pairs, strict=True)]

    def _hvd_ready(self, owner: Any, grads: list[Any], variables: list[Any]) -> list[Any]:
        if self.__dict__["_agg_helper"] is not None and hasattr(owner, "build"):
            with tf.init_scope():  # not inside a condition on the step
                owner.build(variables)
        return grads

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        return self._hvd_apply(super().apply_gradients, self, grads_and_vars, *args, **kwargs)  # type: ignore[misc]

    def _hvd_apply(self, apply: Any, owner: Any, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        pairs = list(grads_and_vars)
        variables = [variable for _, variable in pairs]
        return self._hvd_step(
            owner,
            [grad for grad, _ in pairs],
            variables,
            lambda final: apply(list(zip(final, variables, strict=True)), *args, **kwargs),
        )


class Keras2(_Keras2):
    """The optimizers of Keras 2.11 and later."""

    def compute_gradients(self, loss: Any, var_list: Any, tape: Any = None) -> list[tuple[Any, Any]]:
        base: Any = super()
        if tape is None and callable(loss):
            tape = tf.GradientTape()
        return self._hvd_pairs(base.compute_gradients(loss, var_list, tape))

    def _compute_gradients(
        self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None
    ) -> list[tuple[Any, Any]]:
        if grad_loss is not None:
            raise ValueError("_compute_gradients: optimizers of Keras 2 since 2.11 take no grad_loss")
        return self.compute_gradients(loss, var_list, tape)


class Keras2Legacy(_Keras2):
    """OptimizerV2, tf.keras.optimizers.legacy."""

    def compute_gradients(self, loss: Any, var_list: Any, tape: Any = None) -> list[tuple[Any, Any]]:
        return self._compute_gradients(loss, var_list, None, tape)

    def _compute_gradients(
        self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None
    ) -> list[tuple[Any, Any]]:
        base: Any = super()
        if tape is None and not callable(loss):
            tape = tf.GradientTape()
        return self._hvd_pairs(base._compute_gradients(loss, var_list, grad_loss, tape))

    @property
    def variables(self) -> CallableList:
        """The optimizer's own variables; may be called too."""
        return CallableList(super().variables())  # type: ignore[misc]

    def get_gradients(self, loss: Any, params: Any) -> list[Any]:
        """The reduced gradients, in a graph."""
        base: Any = super()
        return self._hvd_reduced(base.get_gradients(loss, params), params)
