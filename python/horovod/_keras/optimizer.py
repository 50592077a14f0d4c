"""Makes an optimizer of any Keras a distributed one: the mixin for its class, and the function that derives the class.

Keras 3 calls apply() with unreduced gradients, which reduces them; Keras 2 (keras2.py) calls compute_gradients(), which
does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from horovod._common.gradient_options import Options
from horovod._common.native import core
from horovod._keras import private
from horovod._keras.backend import Backend
from horovod._keras.checks import is_distributed
from horovod._keras.loss_scale import reduce_before_scaling, scales_losses

__all__ = ["Distributed", "Keras3", "create_distributed_optimizer", "distribute_in_place"]


class CallableList(list[Any]):
    """A list that may be called: scripts for Keras 3 write optimizer.variables, older ones optimizer.variables()."""

    def __call__(self) -> list[Any]:
        return self


class Distributed:
    """A mixin for the class of the wrapped optimizer. Its state is in __dict__, where Keras does not track it."""

    _hvd_options: Options
    _hvd_backend: Backend
    _HAS_AGGREGATE_GRAD = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._hvd_set_up()

    def _hvd_set_up(self) -> None:
        options, backend = self._hvd_options, self._hvd_backend
        name = options.name or f"Distributed{type(self).__name__}"
        reduce = backend.reducer(name, options)
        self.__dict__.update(
            _name=name,
            _hvd_reduce=reduce,
            _hvd_local=backend.LocalVariables(options.process_set, options.scale_local_gradients),
            _agg_helper=backend.passes(options, reduce, name) if options.backward_passes_per_step > 1 else None,
            _hvd_is_applying=False,
        )
        for variable in options.local_variables:
            self.register_local_var(variable)

    def get_config(self) -> dict[str, Any]:
        """The configuration of the wrapped optimizer."""
        config: dict[str, Any] = super().get_config()  # type: ignore[misc]
        if isinstance(config.get("momentum"), float):
            config["momentum"] = float(config["momentum"])  # not the Momentum that a callback has set
        return config

    def register_local_var(self, var: Any) -> None:
        """Makes the variable `var` local: its gradient stays on this rank."""
        self.__dict__["_hvd_local"].register(var)
        if self.__dict__["_agg_helper"] is not None:
            self.__dict__["_agg_helper"].register_local_var(var)

    def _hvd_reduced(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """The reduced gradients; with backward_passes_per_step this rank's sums until the last pass."""
        helper, local = self.__dict__["_agg_helper"], self.__dict__["_hvd_local"]
        if helper is None:
            reduced: list[Any] = local.reduce(self.__dict__["_hvd_reduce"], grads, variables)
            return reduced
        summed: list[Any] = helper.compute_gradients(grads, variables)
        return summed

    def _hvd_ready(self, owner: Any, grads: list[Any], variables: list[Any]) -> list[Any]:
        """The gradients of a step, reduced unless they are already."""
        del owner
        return self._hvd_reduced(grads, variables)

    def _hvd_step(self, owner: Any, grads: Any, variables: Any, apply: Callable[[list[Any]], Any]) -> Any:
        """Calls apply() with reduced gradients, in a step that reduces.

        `owner`: this optimizer, or the LossScaleOptimizer around it, whose apply() calls this one: then the gradients
        are not reduced again.
        """
        grads, variables = list(grads), list(variables)
        if self.__dict__["_hvd_is_applying"] or not grads or len(grads) != len(variables):
            return apply(grads)  # reduced already; or wrong, and Keras raises an error
        ready = self._hvd_ready(owner, grads, variables)

        def finish() -> Any:
            final = self._hvd_share_overflow(ready, variables) if scales_losses(owner) else ready
            self.__dict__["_hvd_is_applying"] = True
            try:
                return apply(final)
            finally:
                self.__dict__["_hvd_is_applying"] = False

        helper = self.__dict__["_agg_helper"]
        return (
            finish()
            if helper is None
            else helper.apply_gradients(finish, owner, list(zip(ready, variables, strict=True)))
        )

    def _hvd_share_overflow(self, grads: list[Any], variables: list[Any]) -> list[Any]:
        """The gradients; only NaNs if a local one is not finite on any rank. All ranks must call it."""
        local = self.__dict__["_hvd_local"]
        if not local.any or not local.process_set.included() or (local.process_set.size() or 1) == 1:
            return grads
        own = [grad for grad, of in zip(grads, variables, strict=True) if of in local and grad is not None]
        return self._hvd_backend.share_overflow(self.__dict__["_hvd_reduce"], grads, own, local.process_set)


class Keras3(Distributed):
    """The mixin for Keras 3. stateless_apply(), which compiled steps use, calls apply() too."""

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        """Reduces the gradients over all ranks, then updates the variables."""
        apply: Any = super().apply  # type: ignore[misc]
        variables = private.trainable_variables(self) if trainable_variables is None else list(trainable_variables)
        return self._hvd_step(self, grads, variables, lambda final: apply(final, trainable_variables))

    def finalize_variable_values(self, var_list: Any) -> None:
        """Called by Keras at the end of fit(), also after an error: raises the cause that the backend has replaced."""
        failure = self._hvd_backend.take_failure()
        if failure is not None:
            raise failure
        super().finalize_variable_values(var_list)  # type: ignore[misc]

    @property
    def variables(self) -> CallableList:
        """The optimizer's own variables; may be called too."""
        return CallableList(super().variables)  # type: ignore[misc]


def _distributed_class(base: type, options: Options, backend: Backend) -> type:
    if options.op not in (core.REDUCE_AVERAGE, core.REDUCE_SUM):
        raise ValueError("op currently only supports Average and Sum")
    if options.backward_passes_per_step <= 0:
        raise ValueError(f"backward_passes_per_step must be at least 1, got {options.backward_passes_per_step}")
    reduce_before_scaling(base)
    if options.compression is None:
        options = dataclasses.replace(options, compression=backend.Compression.none)
    attributes = {"__module__": "horovod._keras", "_hvd_options": options, "_hvd_backend": backend}
    made = type(base.__name__, (backend.mixin_for(base), base), attributes)
    private.save_as(made, base)
    return made


def _check_accumulation(optimizer: Any, options: Options) -> None:
    """ValueError if both Keras and Horovod would add up gradients: one would count the other's steps."""
    steps = getattr(getattr(optimizer, "inner_optimizer", optimizer), "gradient_accumulation_steps", None)
    if steps and options.backward_passes_per_step > 1:
        raise ValueError(
            f"backward_passes_per_step={options.backward_passes_per_step} of hvd.DistributedOptimizer and "
            f"gradient_accumulation_steps={steps} of the optimizer both add up gradients: use one of them"
        )


def create_distributed_optimizer(optimizer: Any, options: Options, backend: Backend) -> Any:
    """A new optimizer with the class name and the configuration of `optimizer`.

    ValueError for anything that is not an optimizer, or is distributed already.
    """
    if isinstance(optimizer, type):
        name = optimizer.__name__
        raise ValueError(f"hvd.DistributedOptimizer: expected an optimizer, got the class {name}: make one, {name}()")
    if is_distributed(optimizer):
        raise ValueError(
            f"this {type(optimizer).__name__} is a hvd.DistributedOptimizer already; wrap it once only: use it as it is"
        )
    if not hasattr(optimizer, "get_config") or not hasattr(optimizer, "apply_gradients"):
        raise ValueError(f"hvd.DistributedOptimizer: expected an optimizer, got {optimizer!r}")
    _check_accumulation(optimizer, options)
    made: Any = _distributed_class(type(optimizer), options, backend)
    return made.from_config(optimizer.get_config())


def distribute_in_place(optimizer: Any, options: Options, backend: Backend) -> Any:
    """Makes the object itself a distributed optimizer, so that it keeps its variables."""
    if not is_distributed(optimizer):
        optimizer.__class__ = _distributed_class(type(optimizer), options, backend)
        optimizer._hvd_set_up()
    return optimizer
