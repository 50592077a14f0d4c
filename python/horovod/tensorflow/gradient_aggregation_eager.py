"""Adds up gradients of several passes on this rank before they are reduced; eagerly or in a tf.function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from horovod._common.gradient_options import in_places
from horovod._common.session import follow_sessions
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow._local import LocalVariables

__all__ = ["LocalGradientAggregationHelperEager"]


def as_dense(grad: Any, sparse_as_dense: bool) -> Any:
    """A dense gradient. ValueError for a sparse one unless `sparse_as_dense`."""
    if not isinstance(grad, tf.IndexedSlices):
        return grad
    if not sparse_as_dense:
        raise ValueError(
            "IndexedSlices are not supported when `backward_passes_per_step` > 1 and `sparse_as_dense` is False"
        )
    return tf.convert_to_tensor(grad)


class Aggregation:
    """The common part of the two helpers, which differ in where the sums and the `counter` of passes are kept."""

    counter: Any

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable[..., list[Any]],
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
    ) -> None:
        if backward_passes_per_step <= 0:
            raise ValueError(f"backward_passes_per_step must be at least 1, got {backward_passes_per_step}")
        self.backward_passes_per_step = backward_passes_per_step
        self.allreduce_grads = allreduce_func
        self.sparse_as_dense = sparse_as_dense
        self.average_aggregated_gradients = average_aggregated_gradients
        self._local = LocalVariables(process_set, scale_local_gradients)
        self._begin()

    def _begin(self) -> None:
        """What a helper needs besides."""

    def register_local_var(self, var: Any) -> None:
        """Makes the variable `var` local: its gradient stays on this rank."""
        self._local.register(var)

    def _accumulators(self, grads: Sequence[Any]) -> list[Any]:
        """One variable for each gradient that is not None, None for the others."""
        raise NotImplementedError

    def compute_gradients(self, grads: Sequence[Any], vars: Sequence[Any]) -> list[Any]:
        """Returns the list of reduced sums of `grads` in every k-th call, of this rank's sums so far in the others; in
        a graph in every k-th run.

        `vars`: the variables of the gradients, in their order.
        """
        grads = [as_dense(grad, self.sparse_as_dense) for grad in grads]
        sums = self._accumulators(grads)
        present = [i for i, grad in enumerate(grads) if grad is not None]
        added = [sums[i].assign_add(grads[i]) for i in present] + [self.counter.assign_add(1)]
        with tf.control_dependencies([one for one in added if one is not None]):
            chosen = tf.cond(
                tf.equal(self.counter.read_value(), self.backward_passes_per_step),
                lambda: self._reduce_and_clear(sums, vars),
                lambda: [tf.identity(sums[i].read_value()) for i in present],
            )
        if not isinstance(chosen, (list, tuple)):
            chosen = [chosen]  # tf.cond of one tensor, in a graph of TF1
        return in_places(chosen, present, len(grads))

    def _reduce_and_clear(self, sums: Sequence[Any], vars: Any) -> list[Any]:
        """The reduced sums that are not None."""
        reduced = [grad for grad in self._reduced(sums, vars) if grad is not None]
        with tf.control_dependencies(reduced):
            # Overwritten, not multiplied: an infinite gradient must not survive.
            cleared = [total.assign(tf.zeros_like(total)) for total in sums if total is not None]
            cleared.append(self.counter.assign(0))
        with tf.control_dependencies([one for one in cleared if one is not None]):
            return [tf.identity(grad) for grad in reduced]

    def _reduced(self, sums: Sequence[Any], vars: Any) -> list[Any]:
        """The values of the accumulators, reduced, and averaged if asked for."""
        totals = [None if total is None else total.read_value() for total in sums]
        reduced = self._local.reduce(self.allreduce_grads, totals, vars)
        if not self.average_aggregated_gradients:
            return reduced
        return [None if grad is None else grad / self.backward_passes_per_step for grad in reduced]


class LocalGradientAggregationHelperEager(Aggregation):
    """Adds up gradients in variables for one optimizer, and reduces them in every k-th call.

    `backward_passes_per_step`: that k, ValueError for less than 1. `allreduce_func`: a function of gradients and
    variables that returns the reduced gradients. `sparse_as_dense`: make tf.IndexedSlices dense first, else they are a
    ValueError. `average_aggregated_gradients`: divide the sums by k. `process_set`, `scale_local_gradients`: as for
    DistributedOptimizer().
    """

    def _begin(self) -> None:
        self.counter = tf.Variable(0, dtype=tf.int32, trainable=False, name="aggregation_counter")
        self.locally_aggregated_grads: dict[int, Any] = {}
        follow_sessions(self)

    def on_session_start(self) -> None:
        """Forgets the passes of a session that ended before they were reduced: ranks begin to count together."""
        if tf.executing_eagerly():
            for variable in (self.counter, *self.locally_aggregated_grads.values()):
                variable.assign(tf.zeros_like(variable))

    def _accumulators(self, grads: Sequence[Any]) -> list[Any]:
        for i, grad in enumerate(grads):
            if grad is not None and i not in self.locally_aggregated_grads:
                with tf.init_scope():
                    self.locally_aggregated_grads[i] = tf.Variable(
                        tf.zeros(grad.shape, grad.dtype), trainable=False, name=f"aggregated_gradient_{i}"
                    )
        return [self.locally_aggregated_grads[i] if grad is not None else None for i, grad in enumerate(grads)]

    def apply_gradients(self, apply_grads_closure: Callable[[], Any], optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls `apply_grads_closure` in the calls that reduced; in the others only counts the step of `optimizer`."""
        del args, kwargs

        def apply() -> Any:
            apply_grads_closure()
            return tf.identity(optimizer.iterations)

        def count() -> Any:
            optimizer.iterations.assign_add(1)
            return tf.identity(optimizer.iterations)

        return tf.cond(tf.equal(self.counter, 0), apply, count)
