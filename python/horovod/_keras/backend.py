"""The seam between Keras and what it computes with."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from horovod._common.gradient_options import Options
from horovod._common.local_variables import LocalVariables
from horovod._common.native import core
from horovod.common.process_sets import ProcessSet

__all__ = ["Backend", "Reduce", "load", "with_backend_argument"]

# reduce(gradients, variables): the gradients of all ranks, in their order. None stays None.
Reduce = Callable[[Sequence[Any], Any], list[Any]]


class Backend:
    """What Horovod needs of TensorFlow, PyTorch or JAX. Each of their modules has one object of it, `BACKEND`.

    Values are anything that the framework can convert to a tensor.
    """

    Compression: Any
    LocalVariables: type[LocalVariables] = LocalVariables
    keras3: type  # the mixin for optimizers of Keras 3

    def mixin_for(self, base: type) -> type:
        """The mixin for optimizers of the class `base`."""
        return self.keras3

    def reducer(self, name: str, options: Options) -> Reduce:
        """The function that reduces the gradients of one optimizer."""
        raise NotImplementedError

    def passes(self, options: Options, reduce: Reduce, name: str) -> Any:
        """The object that adds up the gradients of several steps.

        It has compute_gradients(), apply_gradients(), register_local_var() and `counter`.
        """
        raise NotImplementedError

    def share_overflow(self, reduce: Reduce, grads: list[Any], own: list[Any], process_set: ProcessSet) -> list[Any]:
        """The gradients `grads`; only NaNs if one of `own`, which were not reduced, is not finite on any rank."""
        raise NotImplementedError

    def broadcast_variables(self, variables: Sequence[Any], root_rank: int, device: str) -> None:
        """Overwrites variables with those of global rank `root_rank`. They are matched by position."""
        raise NotImplementedError

    def broadcast_global_variables(self, root_rank: int) -> Any:
        """RuntimeError, also for `root_rank`: only graphs of TF1 have global variables."""
        raise RuntimeError(
            f"hvd.broadcast_global_variables({root_rank}): Keras 3 has no global variables. Pass "
            f"hvd.callbacks.BroadcastGlobalVariablesCallback({root_rank}) to model.fit(), or broadcast single values "
            "with hvd.broadcast(value, root_rank)"
        )

    def prepare(self, model: Any) -> None:
        """Corrects options that Keras has chosen for a model and that cannot work."""

    def prepare_momentum(self, model: Any) -> None:
        """Makes the momentum of the model's optimizer changeable between compiled steps."""

    def compiles_numbers(self, model: Any) -> bool:
        """Whether Python numbers of an optimizer are constants in the model's train step."""
        return bool(model.jit_compile) and not model.run_eagerly

    def take_failure(self) -> BaseException | None:
        """The exception that ended a compiled step, if the framework raised another in its stead. Returned once."""
        return None

    def allreduce(
        self, value: Any, name: str | None, op: int, prescale_factor: float, postscale_factor: float, compression: Any
    ) -> Any:
        """Reduces `value` over all ranks."""
        raise NotImplementedError

    def allgather(self, value: Any, name: str | None = None) -> Any:
        """Concatenates the rows of `value` of all ranks, in rank order; first dimensions may differ.

        Returns a tensor of the backend. `name` and errors as for allreduce().
        """
        raise NotImplementedError

    def broadcast(self, value: Any, root_rank: int, name: str | None = None) -> Any:
        """Returns the `value` of global rank `root_rank` on all ranks, a tensor of the backend.

        Every rank passes a value of the same shape and type. `name` and errors as for allreduce().
        """
        raise NotImplementedError

    def reducescatter(self, value: Any, name: str | None = None, op: int = core.REDUCE_AVERAGE) -> Any:
        """Reduces `value` over the N ranks; returns this rank's share of the rows, a tensor of the backend.

        Every rank gets dim0 // N rows, in rank order, and the first dim0 % N ranks get one more. `op`: Average or Sum.
        `name` and errors as for allreduce().
        """
        raise NotImplementedError


_NAMES = ("tensorflow", "torch", "jax")


def load(keras: Any) -> Backend:
    """The object for the backend that Keras was imported with. ImportError for one that Horovod does not support."""
    return _object_of(keras.backend)


def _object_of(module: Any) -> Backend:
    name = module.backend()
    if name not in _NAMES:
        raise ImportError(
            f"horovod.keras: Keras runs on its backend {name!r}; Horovod works with {', '.join(_NAMES)}. Set the "
            "environment variable KERAS_BACKEND to one of them before keras is imported"
        )
    backend: Backend = importlib.import_module(f"horovod._keras.{name}").BACKEND
    return backend


def with_backend_argument(mixin: type) -> Any:
    """The class of Horovod 0.28 from which scripts and Keras' Callback made a callback: `mixin`, with a constructor
    that takes the module keras.backend before the other arguments.
    """

    def __init__(self: Any, backend: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        self.backend = _object_of(backend)
        mixin.__init__(self, *args, **kwargs)  # type: ignore[misc]

    members = {"__module__": mixin.__module__, "__doc__": mixin.__doc__, "__init__": __init__}
    return type(f"{mixin.__name__}CallbackImpl", (mixin,), members)
