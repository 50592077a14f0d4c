"""Adds up gradients of several passes on this rank before they are reduced; for graphs with sessions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow.functions import session_if_any
from horovod.tensorflow.gradient_aggregation_eager import Aggregation

__all__ = ["LocalGradientAggregationHelper"]

_COLLECTION = "aggregating_collection"


class LocalGradientAggregationHelper(Aggregation):
    """Adds up gradients in local variables of one graph, which local_variables_initializer() sets, for one optimizer.

    `backward_passes_per_step`: how many runs are added up, ValueError for less than 1. `allreduce_func`: a function of
    gradients and variables that returns the reduced gradients. `sparse_as_dense`: make tf.IndexedSlices dense first,
    else they are a ValueError. `average_aggregated_gradients`: divide the sums by the number of runs. `rank`, `name`:
    parts of the variables' names. `optimizer_type`: one of the two _OPTIMIZER_TYPE constants. `process_set`,
    `scale_local_gradients`: as for DistributedOptimizer().
    """

    _OPTIMIZER_TYPE_KERAS = "optimizer_type_keras"
    _OPTIMIZER_TYPE_LEGACY = "optimizer_type_legacy"

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable[..., list[Any]],
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
        rank: int,
        optimizer_type: str,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
        name: str = "",
    ) -> None:
        super().__init__(
            backward_passes_per_step,
            allreduce_func,
            sparse_as_dense,
            average_aggregated_gradients,
            process_set,
            scale_local_gradients,
        )
        self.rank = rank
        self.optimizer_type = optimizer_type
        self.name = name
        self.counter: Any = None

    def _variable(self, name: str, initial: Any, extra: list[str]) -> Any:
        variable = tf.compat.v1.get_variable(
            name,
            initializer=initial,
            trainable=False,
            use_resource=True,
            collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES, *extra],
        )
        session = session_if_any() if self.optimizer_type == self._OPTIMIZER_TYPE_KERAS else None
        if session is not None:
            session.run(variable.initializer)  # Keras initialises only variables of its own
        return variable

    def _accumulators(self, grads: Sequence[Any]) -> list[Any]:
        scope = f"aggregation_variables_{self.name}{self.rank}"
        with tf.compat.v1.variable_scope(scope, reuse=tf.compat.v1.AUTO_REUSE):
            self.counter = self._variable("aggregation_counter", tf.zeros([], tf.int32), [])
            return [
                None
                if grad is None
                else self._variable(f"aggregated_gradient_{i}", tf.zeros(grad.shape, grad.dtype), [_COLLECTION])
                for i, grad in enumerate(grads)
            ]

    def _count_step(self, optimizer: Any, global_step: Any) -> Any:
        step = optimizer.iterations if self.optimizer_type == self._OPTIMIZER_TYPE_KERAS else global_step
        return tf.no_op() if step is None else tf.compat.v1.assign_add(step, tf.ones_like(step)).op

    def apply_gradients(self, apply_grads_closure: Callable[[], Any], optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls `apply_grads_closure` on the runs that reduced; on the others only counts the step of `optimizer`.

        Other arguments as of optimizer.apply_gradients(). Returns an op.
        """
        grads_and_vars = list(args[0]) if args else list(kwargs.get("grads_and_vars") or ())
        global_step = kwargs.get("global_step", args[1] if len(args) > 1 else None)
        with tf.control_dependencies([grad for grad, _ in grads_and_vars if grad is not None]):
            has_reduced = tf.equal(self.counter.read_value(), 0)

        def apply() -> Any:
            done = apply_grads_closure()
            with tf.control_dependencies([done] if done is not None else []):
                return tf.constant(True)

        def count() -> Any:
            with tf.control_dependencies([self._count_step(optimizer, global_step)]):
                return tf.constant(False)

        return tf.cond(has_reduced, apply, count).op
