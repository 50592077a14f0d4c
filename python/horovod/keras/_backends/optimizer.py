"""A Keras 3 optimizer that reduces its gradients over the ranks before it applies them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras

from horovod.keras._backends.gradients import Gradients, Reduce
from horovod.keras._backends.loss_scale import is_loss_scale, reduce_before_scaling
from horovod.keras._backends.options import Options
from horovod.keras._backends.passes import LocalPasses

__all__ = ["Backend", "create", "distribute_in_place", "is_distributed"]


class Backend:
    """What an optimizer needs of the backend that Keras computes with."""

    def reducer(self, name: str, options: Options) -> Reduce:
        """A function that reduces gradients over the ranks, as Reduce says."""
        raise NotImplementedError

    def take_failure(self) -> BaseException | None:
        """What ended a compiled step, when the backend raised something else in its place. Forgets it."""
        return None

    def passes(self, options: Options) -> LocalPasses | None:
        """What adds up the gradients of several steps, None when every step reduces. ValueError where it cannot."""
        raise NotImplementedError


class _CallableList(list[Any]):
    """A list for those who write optimizer.variables and for those who write optimizer.variables()."""

    def __call__(self) -> list[Any]:
        return self


class Distributed:
    """Mixed into the class of the wrapped optimizer. Its state is kept out of Keras' tracking."""

    _hvd_options: Options
    _hvd_backend: Backend
    _HAS_AGGREGATE_GRAD = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._hvd_set_up()

    def _hvd_set_up(self) -> None:
        options, backend = self._hvd_options, self._hvd_backend
        name = options.name or f"Distributed{type(self).__name__}"
        self.__dict__.update(
            _name=name,
            _hvd_gradients=Gradients(options, backend.reducer(name, options)),
            _hvd_is_applying=False,
            _agg_helper=backend.passes(options),
        )
        for variable in options.local_variables:
            self.register_local_var(variable)

    def register_local_var(self, var: Any) -> None:
        """The gradient of `var` stays on this rank."""
        self.__dict__["_hvd_gradients"].register_local(var)

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        """Reduces the gradients over all ranks, then updates the variables."""
        self._hvd_apply(super().apply, self, grads, trainable_variables)  # type: ignore[misc]

    def stateless_apply(self, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
        """The same on values instead of variables, for compiled steps."""
        apply = super().stateless_apply  # type: ignore[misc]
        return self._hvd_stateless_apply(apply, self, optimizer_variables, grads, trainable_variables)

    # `owner` is this optimizer, or the LossScaleOptimizer around it; `apply` is what it did without Horovod.

    def _hvd_apply(self, apply: Callable[..., None], owner: Any, grads: Any, trainable_variables: Any) -> None:
        grads = list(grads)
        variables = owner._trainable_variables if trainable_variables is None else list(trainable_variables)
        if self.__dict__["_hvd_is_applying"] or len(grads) != len(variables):
            apply(grads, trainable_variables)  # reduced already; or wrong, and Keras says in which way
            return
        passes = self.__dict__["_agg_helper"]
        if passes is not None:
            grads = passes.add(grads)
            if not passes.is_complete:
                owner.iterations.assign_add(1)
                return
        reduced = self._hvd_reduced(owner, grads, variables)
        if passes is not None:
            reduced = passes.finish(reduced)
        self._hvd_with_reduced(apply, reduced, trainable_variables)

    def _hvd_stateless_apply(
        self, apply: Callable[..., Any], owner: Any, optimizer_variables: Any, grads: Any, trainable_variables: Any
    ) -> Any:
        grads = list(grads)
        variables = owner._trainable_variables
        if not self.__dict__["_hvd_is_applying"] and len(grads) == len(variables):
            grads = self._hvd_reduced(owner, grads, variables)
        return self._hvd_with_reduced(apply, optimizer_variables, grads, trainable_variables)

    def _hvd_reduced(self, owner: Any, grads: list[Any], variables: Sequence[Any]) -> list[Any]:
        gradients: Gradients = self.__dict__["_hvd_gradients"]
        return gradients.reduced(grads, variables, shares_overflow=is_loss_scale(owner))

    def _hvd_with_reduced(self, apply: Callable[..., Any], *args: Any) -> Any:
        """Calls what may come back to apply() with gradients that are reduced."""
        before = self.__dict__["_hvd_is_applying"]
        self.__dict__["_hvd_is_applying"] = True
        try:
            return apply(*args)
        finally:
            self.__dict__["_hvd_is_applying"] = before

    def finalize_variable_values(self, var_list: Any) -> None:
        """Keras calls this at the end of fit(), also of one that failed: raises the cause that the backend hid."""
        failure = self._hvd_backend.take_failure()
        if failure is not None:
            raise failure
        super().finalize_variable_values(var_list)  # type: ignore[misc]

    @property
    def variables(self) -> _CallableList:
        """The optimizer's own variables; may be called too."""
        return _CallableList(super().variables)  # type: ignore[misc]


def _save_as(made: type, base: type) -> None:
    """Lets saved models name the class that Keras knows: they load where there is no Horovod, on any backend."""
    try:
        from keras.src import api_export
    except ImportError:
        return
    names = getattr(api_export, "REGISTERED_OBJS_TO_NAMES", {})
    for known in base.__mro__:  # on torch, instances are of a class below the public one
        if known in names and known.__name__ == base.__name__:
            names[made] = names[known]
            return


def _distributed_class(base: type, options: Options, backend: Backend) -> type:
    reduce_before_scaling()
    made = type(
        base.__name__,
        (Distributed, base),
        {"__module__": "horovod._keras", "_hvd_options": options, "_hvd_backend": backend},
    )
    _save_as(made, base)
    return made


def is_distributed(optimizer: Any) -> bool:
    """Whether the gradients of the optimizer are reduced."""
    return isinstance(optimizer, Distributed) or (
        is_loss_scale(optimizer) and isinstance(optimizer.inner_optimizer, Distributed)
    )


def create(optimizer: Any, options: Options, backend: Backend) -> Any:
    """A new optimizer with the class name and the configuration of `optimizer`. ValueError for a wrapped one."""
    if is_distributed(optimizer):
        raise ValueError(f"this {type(optimizer).__name__} is a hvd.DistributedOptimizer already; wrap it once only")
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise ValueError(
            f"hvd.DistributedOptimizer: expected an optimizer of keras.optimizers, got {type(optimizer).__name__}"
        )
    made: Any = _distributed_class(type(optimizer), options, backend)
    return made.from_config(optimizer.get_config())


def distribute_in_place(optimizer: Any, options: Options, backend: Backend) -> Any:
    """Makes this very optimizer a distributed one: it keeps its variables."""
    if not is_distributed(optimizer):
        optimizer.__class__ = _distributed_class(type(optimizer), options, backend)
        optimizer._hvd_set_up()
    return optimizer
