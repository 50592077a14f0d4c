"""The seam between Keras and what it computes with."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from horovod._common.local_variables import LocalVariables
from horovod._keras.options import Options
from horovod.common.process_sets import ProcessSet

__all__ = ["Backend", "Reduce", "load"]

# reduce(gradients, variables): the gradients of all ranks, in their order. None stays None.
Reduce = Callable[[Sequence[Any], Any], list[Any]]


class Backend:
    """What Horovod needs of TensorFlow, PyTorch or JAX. Each of their modules has one object of it, `BACKEND`.

    It also has the value functions `allreduce`, `allgather`, `broadcast` and `reducescatter`, which take whatever the
    framework makes tensors of.
    """

    Compression: Any
    LocalVariables: type[LocalVariables] = LocalVariables
    keras3: type  # what is mixed into an optimizer of Keras 3

    def reducer(self, name: str, options: Options) -> Reduce:
        """What reduces the gradients of one optimizer."""
        raise NotImplementedError

    def passes(self, options: Options, reduce: Reduce, name: str) -> Any:
        """What adds up the gradients of several steps: `compute_gradients()`, `apply_gradients()` and `counter`."""
        raise NotImplementedError

    def share_overflow(self, reduce: Reduce, grads: list[Any], own: list[Any], process_set: ProcessSet) -> list[Any]:
        """The gradients; all NaNs when one of `own`, which were not reduced, is not finite on any rank."""
        raise NotImplementedError

    def broadcast_variables(self, variables: Sequence[Any], root_rank: int, device: str) -> None:
        """Overwrites variables with those of global rank `root_rank`; matched by position."""
        raise NotImplementedError

    def broadcast_global_variables(self, root_rank: int) -> Any:
        """RuntimeError: only TensorFlow's graphs have global variables."""
        raise RuntimeError(
            f"hvd.broadcast_global_variables({root_rank}): Keras 3 has no global variables. Pass "
            f"hvd.callbacks.BroadcastGlobalVariablesCallback({root_rank}) to model.fit(), or broadcast single values "
            "with hvd.broadcast(value, root_rank)"
        )

    def prepare(self, model: Any) -> None:
        """Undoes what Keras chose for a model and cannot work."""

    def prepare_momentum(self, model: Any) -> None:
        """Lets the momentum of the model's optimizer change between steps that are compiled."""

    def compiles_numbers(self, model: Any) -> bool:
        """Whether Python numbers of an optimizer are constants in the model's train step."""
        return bool(model.jit_compile) and not model.run_eagerly

    def take_failure(self) -> BaseException | None:
        """What ended a compiled step, when the framework raised something else in its place. Forgets it."""
        return None


_NAMES = ("tensorflow", "torch", "jax")


def load(keras: Any) -> Backend:
    """The backend that Keras was imported with. ImportError for one that Horovod does not serve."""
    name = keras.backend.backend()
    if name not in _NAMES:
        raise ImportError(
            f"horovod.keras: Keras runs on its backend {name!r}; Horovod works with {', '.join(_NAMES)}. Set the "
            "environment variable KERAS_BACKEND to one of them before keras is imported"
        )
    backend: Backend = importlib.import_module(f"horovod._keras.{name}").BACKEND
    return backend
