"""DistributedOptimizer of a tf.compat.v1.train.Optimizer."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod._common.gradient_options import Options
from horovod.tensorflow._local import LocalVariables
from horovod.tensorflow._reduction import reduction_of
from horovod.tensorflow._session import basics
from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
from horovod.tensorflow.util import _executing_eagerly

__all__ = ["DistributedLegacyOptimizer"]


class DistributedLegacyOptimizer(tf.compat.v1.train.Optimizer):  # type: ignore[misc]
    """Reduces the gradients that the wrapped optimizer computes; everything else is delegated to that."""

    def __init__(self, optimizer: Any, name: str, use_locking: bool, options: Options) -> None:
        super().__init__(name=name, use_locking=use_locking)
        self._optimizer = optimizer
        self._reduce = reduction_of(name, options)
        self._local = LocalVariables(options.process_set, options.scale_local_gradients)
        self._agg_helper = None
        if options.backward_passes_per_step > 1:
            if _executing_eagerly():
                raise ValueError(
                    "backward_passes_per_step > 1 is not supported in eager mode with a tf.compat.v1 optimizer; "
                    "use a Keras optimizer"
                )
            self._agg_helper = LocalGradientAggregationHelper(
                options.backward_passes_per_step,
                self._reduce,
                options.sparse_as_dense,
                options.average_aggregated_gradients,
                basics.rank(),
                LocalGradientAggregationHelper._OPTIMIZER_TYPE_LEGACY,
                options.process_set,
                options.scale_local_gradients,
                name,
            )

    def register_local_var(self, var: Any) -> None:
        """Makes the variable `var` local: its gradient stays on this rank."""
        (self._agg_helper.register_local_var if self._agg_helper else self._local.register)(var)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """The gradients of the wrapped optimizer with their variables, reduced over all ranks."""
        computed = self._optimizer.compute_gradients(*args, **kwargs)
        grads = [grad for grad, _ in computed]
        variables = [variable for _, variable in computed]
        if self._agg_helper is not None:
            grads = self._agg_helper.compute_gradients(grads, variables)
        else:
            grads = self._local.reduce(self._reduce, grads, variables)
        return list(zip(grads, variables, strict=True))

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        grads_and_vars = list(grads_and_vars)
        if self._agg_helper is None:
            return self._optimizer.apply_gradients(grads_and_vars, global_step=global_step, name=name)
        return self._agg_helper.apply_gradients(
            lambda: self._optimizer.apply_gradients(grads_and_vars, global_step=global_step, name=name),
            self,
            grads_and_vars,
            global_step,
        )

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        return self._optimizer.variables(*args, **kwargs)
