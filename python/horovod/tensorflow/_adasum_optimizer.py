"""DistributedOptimizer(op=Adasum) for tf.compat.v1.train.Optimizer: combines what steps did, not gradients."""

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
    """The variable's value, and where it has none yet, the one that it will be initialised with."""
    if tf.executing_eagerly():
        return variable.read_value()
    if getattr(variable.dtype, "_is_ref_dtype", False) and tf.compat.v1.control_flow_v2_enabled():
        return variable.initial_value  # a branch of tf.cond would read it in any case
    has_value = tf.compat.v1.is_variable_initialized(variable)
    return tf.cond(has_value, variable.read_value, lambda: variable.initial_value)


class DistributedAdasumLegacyOptimizer(tf.compat.v1.train.Optimizer):  # type: ignore[misc]
    """Each rank takes steps of its own; after every `backward_passes_per_step` of them ranks combine how far they came.

    The slot `delta_start` of each variable holds where all ranks started from. It and the counter of steps are global
    variables, so tf.compat.v1.global_variables_initializer() and BroadcastGlobalVariablesHook reach them.
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
        """Those of this rank."""
        return self._optimizer.compute_gradients(*args, **kwargs)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        """Steps on this rank, then, every k-th time, to where all ranks together came."""
        grads_and_vars = list(grads_and_vars)
        changed = [variable for grad, variable in grads_and_vars if grad is not None]
        starts = self._make_starts(changed)
        grads = [grad for grad, _ in grads_and_vars if grad is not None]
        with tf.control_dependencies([*starts, *grads] if not tf.executing_eagerly() else []):
            stepped = self._optimizer.apply_gradients(grads_and_vars, global_step=global_step, name=name)
        with tf.control_dependencies([stepped] if stepped is not None else []):
            number = self._counter().assign_add(1, read_value=True)
        with tf.control_dependencies([number] if not tf.executing_eagerly() else []):
            here = [variable.read_value() for variable in changed]
            before = [start.read_value() for start in starts]
        if self._passes == 1:
            after, there = self._meet(here, before)
        else:
            is_due = tf.equal(number % self._passes, 0)
            after, there = tf.cond(is_due, lambda: self._meet(here, before), lambda: (before, here))
        # Outside the condition, where variables of every kind can be assigned.
        return tf.group(
            *[tf.compat.v1.assign(start, value) for start, value in zip(starts, after, strict=True)],
            *[tf.compat.v1.assign(variable, value) for variable, value in zip(changed, there, strict=True)],
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

    def _meet(self, here: Sequence[Any], before: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Where all ranks go on from, for the starts and for the variables: what Adasum makes of their ways so far."""
        options: dict[str, Any] = {"device_dense": self._device, "compression": self._compression, "op": ADASUM}
        there = [
            start + allreduce(value - start, name=f"adasum_delta_{number}", **options)
            for number, (value, start) in enumerate(zip(here, before, strict=True))
        ]
        return there, list(there)

    def get_slot(self, var: Any, name: str) -> Any:
        return super().get_slot(var, name) if name == _SLOT else self._optimizer.get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        return [*self._optimizer.get_slot_names(), *super().get_slot_names()]

    def variables(self) -> list[Any]:
        return [*self._optimizer.variables(), *super().variables(), *self._steps.values()]
