"""What is mixed into the class of a wrapped optimizer: for any Keras, and for Keras 3 (keras2.py has the rest).

Keras 3 calls apply() with plain gradients, so it reduces there; Keras 2 asks compute_gradients() for them, as Horovod
always had it. Gradients that a DistributedGradientTape or compute_gradients() has reduced are not reduced again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from horovod._keras.loss_scale import scales, share_overflow
from horovod._keras.momentum import Momentum
from horovod._keras.options import Options
from horovod.tensorflow._local import LocalVariables
from horovod.tensorflow._reduction import _make_allreduce_grads_fn
from horovod.tensorflow._session import basics
from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
from horovod.tensorflow.gradient_aggregation_eager import LocalGradientAggregationHelperEager
from horovod.tensorflow.util import all_reduced, mark_reduced, plain

__all__ = ["CallableList", "Distributed", "Keras3"]


class CallableList(list[Any]):
    """A list for those who write optimizer.variables and for those who write optimizer.variables()."""

    def __call__(self) -> list[Any]:
        return self


def _make_helper(options: Options, reduce: Callable[..., list[Any]], name: str) -> Any:
    """What sums up the gradients of several passes: for eager mode and tf.function, or for the graph of a session."""
    passes = (
        options.backward_passes_per_step,
        reduce,
        options.sparse_as_dense,
        options.average_aggregated_gradients,
    )
    local = (options.process_set, options.scale_local_gradients)
    if tf.compat.v1.executing_eagerly_outside_functions():
        return LocalGradientAggregationHelperEager(*passes, *local)
    kind = LocalGradientAggregationHelper._OPTIMIZER_TYPE_KERAS
    return LocalGradientAggregationHelper(*passes, basics.rank(), kind, *local, name)


class Distributed:
    """Mixed into the class of the wrapped optimizer. Its state is kept out of Keras' tracking."""

    _hvd_options: Options
    _HAS_AGGREGATE_GRAD = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._hvd_set_up()

    def _hvd_set_up(self) -> None:
        options = self._hvd_options
        base_name = type(self).__name__
        name = options.name or f"Distributed{base_name}"
        reduce = _make_allreduce_grads_fn(
            name,
            options.device_dense,
            options.device_sparse,
            options.compression,
            options.sparse_as_dense,
            options.op,
            options.gradient_predivide_factor,
            options.groups,
            options.process_set,
        )
        helper = _make_helper(options, reduce, name) if options.backward_passes_per_step > 1 else None
        local = LocalVariables(options.process_set, options.scale_local_gradients)
        self.__dict__.update(
            _name=name,
            _hvd_reduce=reduce,
            _hvd_local=local,
            _agg_helper=helper,
            _hvd_is_applying=False,
            _hvd_computes=False,
        )
        for variable in options.local_variables:
            self.register_local_var(variable)

    def get_config(self) -> dict[str, Any]:
        """The configuration of the optimizer that is wrapped."""
        config: dict[str, Any] = super().get_config()  # type: ignore[misc]
        if isinstance(config.get("momentum"), Momentum):
            config["momentum"] = float(config["momentum"])
        return config

    def register_local_var(self, var: Any) -> None:
        """The gradient of `var` stays on this rank."""
        self.__dict__["_hvd_local"].register(var)
        if self.__dict__["_agg_helper"] is not None:
            self.__dict__["_agg_helper"].register_local_var(var)

    def _hvd_finish(self, owner: Any, grads: list[Any], variables: list[Any], apply: Callable[[list[Any]], Any]) -> Any:
        """Applies reduced gradients; what comes back to this optimizer from there on is not reduced again."""
        final = share_overflow(grads, variables, self.__dict__["_hvd_local"]) if scales(owner) else grads
        self.__dict__["_hvd_is_applying"] = True
        try:
            return apply(final)
        finally:
            self.__dict__["_hvd_is_applying"] = False

    def _hvd_reduced(self, grads: Any, variables: Any) -> list[Any]:
        """The gradients of all ranks, or with backward_passes_per_step the sums so far."""
        helper = self.__dict__["_agg_helper"]
        if helper is not None:
            reduced: list[Any] = helper.compute_gradients(list(grads), list(variables))
        else:
            reduced = self.__dict__["_hvd_local"].reduce(self.__dict__["_hvd_reduce"], list(grads), list(variables))
        mark_reduced(reduced)
        return reduced

    def _hvd_pairs(self, computed: Any) -> list[tuple[Any, Any]]:
        pairs = list(computed)
        grads = self._hvd_reduced([grad for grad, _ in pairs], [variable for _, variable in pairs])
        return [(grad, variable) for grad, (_, variable) in zip(grads, pairs, strict=True)]


def _plain_gradients(loss: Any, variables: Any, grad_loss: Any, tape: Any) -> list[Any]:
    """The gradients of a loss, or of what a function computes; `grad_loss` is the loss' own, ones by default."""
    if callable(loss):
        tape = tape or tf.GradientTape()
        with tape:
            loss = loss()
    elif tape is None:
        raise ValueError("compute_gradients: `tape` is needed when the loss is a tensor")
    return list(tape.gradient(loss, variables, output_gradients=grad_loss))


class Keras3(Distributed):
    """Keras 3: train_step hands gradients to apply_gradients(), which calls apply().

    Who calls compute_gradients() has reduced gradients from then on, until the next fit() with a Horovod callback. They
    may reach apply() through a tf.function or clipped, and so as other tensors than those that were marked.
    """

    def compute_gradients(self, loss: Any, var_list: Any, tape: Any = None) -> list[tuple[Any, Any]]:
        """The reduced gradients of a loss with their variables; apply_gradients() does not reduce them again."""
        return self._compute_gradients(loss, var_list, None, tape)

    def _compute_gradients(
        self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None
    ) -> list[tuple[Any, Any]]:
        variables = list(var_list() if callable(var_list) else var_list)
        pairs = zip(_plain_gradients(loss, variables, grad_loss, tape), variables, strict=True)
        return list(self.aggregate_gradients(pairs))

    def aggregate_gradients(self, grads_and_vars: Any) -> list[tuple[Any, Any]]:
        """The reduced gradients with their variables, in their order."""
        self.__dict__["_hvd_computes"] = True
        return self._hvd_pairs(grads_and_vars)

    @plain
    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        self._hvd_step(super().apply, self, grads, trainable_variables)  # type: ignore[misc]

    def _hvd_step(self, apply: Callable[..., None], owner: Any, grads: Any, trainable_variables: Any) -> None:
        """Reduces, then applies. `owner`: this optimizer, or the LossScaleOptimizer around it, whose apply() it is."""
        grads = list(grads)
        if not grads:
            return
        if self.__dict__["_hvd_is_applying"]:
            apply(grads, trainable_variables)
            return
        known: Any = self
        variables = list(trainable_variables) if trainable_variables is not None else known._trainable_variables
        if not self.__dict__["_hvd_computes"] and not all_reduced(grads):
            grads = self._hvd_reduced(grads, variables)

        def finish() -> None:
            self._hvd_finish(owner, grads, variables, lambda final: apply(final, trainable_variables))

        helper = self.__dict__["_agg_helper"]
        if helper is None:
            finish()
            return
        if not owner.built:
            with tf.init_scope():
                owner.build(variables)
            owner.built = True
        helper.apply_gradients(finish, owner)

    @property
    def variables(self) -> CallableList:
        """The optimizer's own variables; may be called too."""
        return CallableList(super().variables)  # type: ignore[misc]
