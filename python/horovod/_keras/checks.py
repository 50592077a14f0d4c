"""Checks of every backend: arguments of old scripts, and whether an optimizer is distributed."""

from __future__ import annotations

import functools
import warnings
from typing import Any

from horovod._common.native import core
from horovod._keras import private

_OLD_ARGUMENT = "experimental_run_tf_function"
_PATCHED = "_hvd_takes_old_argument"


def require_tensorflow_backend(keras: Any) -> None:
    """ImportError, which names the right module, if tf.keras is a Keras 3 on another backend than TensorFlow."""
    backend = keras.backend.backend() if hasattr(keras.backend, "backend") else "tensorflow"
    if backend != "tensorflow":
        raise ImportError(
            f"horovod.tensorflow.keras is for Keras on TensorFlow, but Keras computes with {backend!r} here "
            "(KERAS_BACKEND, or ~/.keras/keras.json); use `import horovod.keras as hvd`, which works on every backend"
        )


def reduction_of(op: int | None, average: bool | None) -> int:
    """The reduction of the arguments `op` and `average` of allreduce(). ValueError if both are given."""
    if average is None:
        return core.REDUCE_AVERAGE if op is None else op
    if op is not None:
        raise ValueError("The op parameter supersedes average. Please provide only one of them: give average=None.")
    return core.REDUCE_AVERAGE if average else core.REDUCE_SUM


def with_inner(optimizer: Any) -> list[Any]:
    """The optimizer, and the inner one of a LossScaleOptimizer."""
    return [one for one in (optimizer, getattr(optimizer, "inner_optimizer", None)) if one is not None]


def is_distributed(optimizer: Any) -> bool:
    """Whether it, or its inner optimizer, is a hvd.DistributedOptimizer."""
    return any(type(one).__module__.startswith("horovod.") for one in with_inner(optimizer))


def tolerate_old_compile_argument() -> None:
    """Makes model.compile() of Keras 3 accept experimental_run_tf_function with a distributed optimizer.

    Horovod's examples have passed it since TensorFlow 2.0, so most scripts do; Keras 2 ignores it and Keras 3 raises a
    TypeError. It has had no meaning since TensorFlow 2.2, so it is dropped with a warning, and such scripts run
    unchanged. Keras has no other hook for that than compile() itself, which is replaced in the class that defines it,
    because saving checks whether a model's compile() is Keras' own. Models with another optimizer get Keras' error.
    """
    import keras

    owner = private.compile_owner(keras)
    if owner is None or not hasattr(keras, "ops") or _PATCHED in vars(owner):
        return
    original_compile = owner.compile

    @functools.wraps(original_compile)
    def compile(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _OLD_ARGUMENT in kwargs and is_distributed(args[0] if args else kwargs.get("optimizer")):
            warnings.warn(
                f"model.compile(): {_OLD_ARGUMENT} has had no effect since TensorFlow 2.2 and is ignored; remove it",
                DeprecationWarning,
                stacklevel=2,
            )
            del kwargs[_OLD_ARGUMENT]
        return original_compile(self, *args, **kwargs)

    owner.compile = compile
    setattr(owner, _PATCHED, True)


def has_own_train_step(model: Any) -> bool:
    """Whether the model's class has a train_step() of its own, which may reduce gradients."""
    owner = next((cls for cls in type(model).__mro__ if "train_step" in vars(cls)), None)
    return owner is not None and not owner.__module__.startswith(("keras.", "tf_keras.", "tensorflow."))
