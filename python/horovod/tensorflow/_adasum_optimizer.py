"""DistributedOptimizer(op=Adasum) for tf.compat.v1.train.Optimizer: combines deltas of steps, not gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow._collectives import ADASUM, allreduce
from horovod.tensorflow.compression import Compressor

__all__ = ["DistributedAdasumLegacyOptimizer"]

_SLOT = "delta_start"


def _initialized_value(variable: Any) -> Any:
    """The variable's value; its initial value if it is not initialised yet."""
    if tf.executing_eagerly():
        return variable.read_value()
    if getattr(variable.dtype, "_is_ref_dtype", False) and tf.compat.v1.control_flow_v2_enabled():
        return variable.initial_value  # a branch of tf.cond would read it in any case
    has_value = tf.compat.v1.is_variable_initialized(variable)
    return tf.cond(has_value, variable.read_value, lambda: variable.initial_value)


class DistributedAdasumLegacyOptimizer(tf.compat.v1.train.Optimizer):  # type: ignore[misc]
    """Each rank takes local steps; after every `backward_passes_per_step` of them the ranks combine their deltas.

    A delta is the change of a variable since the last combination. The slot `delta_start` of each variable holds the
    value after that, which all ranks have. Slots and the counter of steps are global variables, which
    tf.compat.v1.global_variables_initializer() and BroadcastGlobalVariablesHook include.
    """

    def __init__(
        self,
        optimizer: Any,
        name: str,
        use_locking: bool,
        device_dense: str,
        compression: type[Compressor],
        backward_passes_per_step: int,
        process_set: ProcessSet,
    ) -> None:
        if process_set is not global_process_set:
            raise NotImplementedError("DistributedOptimizer: Adasum is only supported on the global process set")
        if backward_passes_per_step <= 0:
            raise ValueError(f"backward_passes_per_step must be at least 1, got {backward_passes_per_step}")
        super().__init__(name=name, use_locking=use_locking)
        self._optimizer = optimizer
        self._device = device_dense
        self._compression = compression
        self._passes = backward_passes_per_step
        self._steps: dict[Any, Any] = {}  # one counter for each graph

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """The gradients of this rank with their variables, as of the wrapped optimizer."""
        return self._optimizer.compute_gradients(*args, **kwargs)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        """Takes a local step; in every k-th call then sets the variables to the combined values. Returns the op."""
        grads_and_vars = list(grads_and_vars)
        changed = [variable for grad, variable in grads_and_vars if grad is not None]
        starts = self._make_starts(changed)
        grads = [grad for grad, _ in grads_and_vars if grad is not None]
        with tf.control_dependencies([*starts, *grads] if not tf.executing_eagerly() else []):
            stepped = self._optimizer.apply_gradients(grads_and_vars, global_step=global_step, name=name)
        with tf.control_dependencies([stepped] if stepped is not None else []):
            number = self._counter().assign_add(1, read_value=True)
        with tf.control_dependencies([number] if not tf.executing_eagerly() else []):
            values = [variable.read_value() for variable in changed]
            start_values = [start.read_value() for start in starts]
        if self._passes == 1:
            new_starts, new_values = self._combine(values, start_values)
        else:
            is_due = tf.equal(number % self._passes, 0)
            new_starts, new_values = tf.cond(
                is_due, lambda: self._combine(values, start_values), lambda: (start_values, values)
            )
        # Outside the condition, where variables of every kind can be assigned.
        return tf.group(
            *[tf.compat.v1.assign(start, value) for start, value in zip(starts, new_starts, strict=True)],
            *[tf.compat.v1.assign(variable, value) for variable, value in zip(changed, new_values, strict=True)],
        )

    def _make_starts(self, variables: Sequence[Any]) -> list[Any]:
        starts = []
        with tf.init_scope() if tf.executing_eagerly() else tf.name_scope(self._name):
            for variable in variables:
                starts.append(self._get_or_make_slot(variable, _initialized_value(variable), _SLOT, self._name))
        return starts

    def _counter(self) -> Any:
        graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        if graph not in self._steps:
            with tf.control_dependencies(None):
                self._steps[graph] = tf.compat.v1.Variable(
                    0, trainable=False, use_resource=True, dtype=tf.int64, name=f"{self._name}/adasum_steps"
                )
        return self._steps[graph]

    def _combine(self, values: Sequence[Any], starts: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """The new values of the slots and of the variables: the starts plus the deltas that Adasum combines."""
        options: dict[str, Any] = {"device_dense": self._device, "compression": self._compression, "op": ADASUM}
        combined = [
            start + allreduce(value - start, name=f"adasum_delta_{number}", **options)
            for number, (value, start) in enumerate(zip(values, starts, strict=True))
        ]
        return combined, list(combined)

    def get_slot(self, var: Any, name: str) -> Any:
        return super().get_slot(var, name) if name == _SLOT else self._optimizer.get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        return [*self._optimizer.get_slot_names(), *super().get_slot_names()]

    def variables(self) -> list[Any]:
        return [*self._optimizer.variables(), *super().variables(), *self._steps.values()]
