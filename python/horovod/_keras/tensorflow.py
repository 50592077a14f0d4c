"""Keras on TensorFlow: Keras 2, and Keras 3 with its backend `tensorflow`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod._common.gradient_options import Options, in_places
from horovod._keras import momentum
from horovod._keras.backend import Backend, Reduce
from horovod._keras.computed import MIXED, Computed
from horovod._keras.keras2 import Keras2, Keras2Legacy
from horovod._keras.optimizer import Keras3
from horovod.common.process_sets import ProcessSet
from horovod.tensorflow import _collectives, _dense, functions
from horovod.tensorflow._local import LocalVariables
from horovod.tensorflow._reduction import reduction_of
from horovod.tensorflow._session import basics
from horovod.tensorflow._xla_support import problem as xla_problem
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
from horovod.tensorflow.gradient_aggregation_eager import LocalGradientAggregationHelperEager
from horovod.tensorflow.util import _executing_eagerly, all_reduced, mark_reduced, no_autograph

__all__ = ["BACKEND"]


def _unreduced_gradients(loss: Any, variables: Any, grad_loss: Any, tape: Any) -> list[Any]:
    """The gradients of a loss, or of a function that returns it. `grad_loss`: the loss' own gradient, 1 by default."""
    if callable(loss):
        tape = tape or tf.GradientTape()
        with tape:
            loss = loss()
    elif tape is None:
        raise ValueError("compute_gradients: `tape` is needed when the loss is a tensor")
    return list(tape.gradient(loss, variables, output_gradients=grad_loss))


class _Keras3(Keras3):
    """Adds compute_gradients() of Keras 2's optimizers, which returns reduced gradients.

    The next apply() of their variables does not reduce them again, even if it gets other tensors, because the gradients
    were clipped or returned by a tf.function.
    """

    def _hvd_set_up(self) -> None:
        super()._hvd_set_up()
        self.__dict__["_hvd_computed"] = Computed()

    def compute_gradients(self, loss: Any, var_list: Any, tape: Any = None) -> list[tuple[Any, Any]]:
        """The reduced gradients of a loss with their variables; the next apply_gradients() does not reduce them."""
        return self._compute_gradients(loss, var_list, None, tape)

    def _compute_gradients(
        self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None
    ) -> list[tuple[Any, Any]]:
        variables = list(var_list() if callable(var_list) else var_list)
        pairs = zip(_unreduced_gradients(loss, variables, grad_loss, tape), variables, strict=True)
        return list(self.aggregate_gradients(pairs))

    def aggregate_gradients(self, grads_and_vars: Any) -> list[tuple[Any, Any]]:
        """The reduced gradients with their variables, in their order."""
        pairs = list(grads_and_vars)
        grads = self._hvd_reduced([grad for grad, _ in pairs], [variable for _, variable in pairs])
        mark_reduced(grads)
        self.__dict__["_hvd_computed"].mark(
            [variable for grad, (_, variable) in zip(grads, pairs, strict=True) if grad is not None]
        )
        return [(grad, variable) for grad, (_, variable) in zip(grads, pairs, strict=True)]

    def _hvd_expect_unreduced(self) -> None:
        self.__dict__["_hvd_computed"].forget()

    def scale_loss(self, loss: Any) -> Any:
        """The first call of Keras' train step, whose gradients are not reduced."""
        self._hvd_expect_unreduced()
        return super().scale_loss(loss)  # type: ignore[misc]

    @no_autograph
    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        return super().apply(grads, trainable_variables)

    def _hvd_ready(self, owner: Any, grads: list[Any], variables: list[Any]) -> list[Any]:
        if self.__dict__["_agg_helper"] is not None and not owner.built:
            with tf.init_scope():  # not inside a condition on the step
                owner.build(variables)
            owner.built = True
        present = [i for i, grad in enumerate(grads) if grad is not None]
        applied, computed = [variables[i] for i in present], self.__dict__["_hvd_computed"]
        if all_reduced(grads):
            computed.clear(applied)
            return grads
        taken = computed.take(applied)
        if isinstance(taken, bool):
            return grads if taken else self._hvd_reduced(grads, variables)
        return self._hvd_reduced_unless(taken[0], taken[1], grads, variables)

    def _hvd_reduced_unless(self, are_all: Any, is_any: Any, grads: list[Any], variables: list[Any]) -> list[Any]:
        """Reduces in a graph that determines when it runs whether all of the gradients are reduced already."""
        if self._hvd_options.sparse_as_dense:  # both branches give the same kinds
            grads = [tf.convert_to_tensor(grad) if isinstance(grad, tf.IndexedSlices) else grad for grad in grads]
        present = [i for i, grad in enumerate(grads) if grad is not None]

        def reduce() -> list[Any]:
            with tf.control_dependencies([tf.debugging.Assert(~is_any, [MIXED])]):
                of_all = self._hvd_reduced(grads, variables)
            return [of_all[i] for i in present]

        chosen = tf.cond(
            are_all,
            lambda: [tf.nest.map_structure(tf.identity, grads[i], expand_composites=True) for i in present],
            reduce,
        )
        return in_places(chosen, present, len(grads))


def _values(grad: Any) -> Any:
    return grad.values if isinstance(grad, tf.IndexedSlices) else grad


def _spoiled(grad: Any, is_bad: Any) -> Any:
    """The gradient, or NaNs of its shape."""
    values = _values(grad)
    values = tf.where(is_bad, tf.fill(tf.shape(values), tf.constant(float("nan"), values.dtype)), values)
    return tf.IndexedSlices(values, grad.indices, grad.dense_shape) if isinstance(grad, tf.IndexedSlices) else values


def _evaluated(tensor: Any) -> Any:
    """The tensor in eager mode, its value in a TF1 graph."""
    if _executing_eagerly() or tf.inside_function():
        return tensor
    return functions.session_or_default(None, "hvd").run(tensor)


class _TensorFlow(Backend):
    Compression = Compression
    LocalVariables = LocalVariables
    keras3 = _Keras3

    def mixin_for(self, base: type) -> type:
        if hasattr(base, "get_gradients"):
            return Keras2Legacy
        return Keras2 if hasattr(base, "compute_gradients") else _Keras3

    def reducer(self, name: str, options: Options) -> Reduce:
        return reduction_of(name, options)

    def passes(self, options: Options, reduce: Reduce, name: str) -> Any:
        """For eager mode and tf.function, or for the graph of a session."""
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

    def share_overflow(self, reduce: Reduce, grads: list[Any], own: list[Any], process_set: ProcessSet) -> list[Any]:
        del reduce
        bad = [tf.reduce_any(~tf.math.is_finite(_values(grad))) for grad in own]
        flag = tf.cast(tf.reduce_any(tf.stack(bad)) if bad else False, tf.float32)
        everywhere = _collectives.allreduce(
            flag, op=_collectives.SUM, name="loss_scale_overflow", process_set=process_set
        )
        return [None if grad is None else _spoiled(grad, everywhere > 0) for grad in grads]

    def broadcast_variables(self, variables: Sequence[Any], root_rank: int, device: str) -> None:
        with tf.device(device):
            if _executing_eagerly():
                functions.broadcast_variables(variables, root_rank)
            else:
                self.broadcast_global_variables(root_rank)

    def prepare(self, model: Any) -> None:
        """Turns off XLA for a model if it cannot compile collectives; Keras turns it on by itself on a GPU."""
        if getattr(model, "jit_compile", False) and xla_problem() is not None:
            model.jit_compile = False

    def prepare_momentum(self, model: Any) -> None:
        momentum.make_changeable(model)

    def compiles_numbers(self, model: Any) -> bool:
        return False  # prepare_momentum() has put it in a variable

    def allreduce(
        self, value: Any, name: str | None, op: int, prescale_factor: float, postscale_factor: float, compression: Any
    ) -> Any:
        return _evaluated(
            _collectives.allreduce(
                tf.constant(value, name=name),
                compression=compression,
                op=op,
                prescale_factor=prescale_factor,
                postscale_factor=postscale_factor,
            )
        )

    def allgather(self, value: Any, name: str | None = None) -> Any:
        return _evaluated(_dense.allgather(tf.constant(value, name=name)))

    def broadcast(self, value: Any, root_rank: int, name: str | None = None) -> Any:
        return _evaluated(_dense.broadcast(tf.constant(value, name=name), root_rank))

    def reducescatter(self, value: Any, name: str | None = None, op: int = _collectives.AVERAGE) -> Any:
        return _evaluated(_collectives.reducescatter(tf.constant(value, name=name), op=op))

    def broadcast_global_variables(self, root_rank: int) -> Any:
        """Overwrites all global variables of the TF1 graph with those of global rank `root_rank`.

        RuntimeError in eager mode.
        """
        return _evaluated(functions.broadcast_global_variables(root_rank))


BACKEND = _TensorFlow()
