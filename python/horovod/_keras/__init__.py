"""What horovod.keras and horovod.tensorflow.keras share on TensorFlow: wrapping an optimizer of any Keras."""

from __future__ import annotations

import sys
from typing import Any

from horovod._common.keras_checks import is_distributed
from horovod._keras.keras2 import Keras2, Keras2Legacy
from horovod._keras.loss_scale import reduce_before_scaling
from horovod._keras.optimizers import Distributed, Keras3
from horovod._keras.options import Options, make_options

__all__ = ["Options", "create_distributed_optimizer", "distribute_in_place", "make_options"]


# Where Keras 3, Keras 2 and tf_keras keep the public and the registered names of classes.
_NAME_TABLES = (
    ("keras.src.api_export", "REGISTERED_OBJS_TO_NAMES"),
    ("keras.src.saving.object_registration", "GLOBAL_CUSTOM_NAMES"),
    ("keras.src.saving.object_registration", "_GLOBAL_CUSTOM_NAMES"),
    ("tf_keras.src.saving.object_registration", "_GLOBAL_CUSTOM_NAMES"),
)


def _save_as(made: type, base: type) -> None:
    """Lets saved models name the class that Keras knows: they load where there is no Horovod."""
    for attribute, names in list(vars(base).items()):  # Keras 2 keeps public names in the class
        if attribute.endswith(("_api_names", "_api_names_v1")):
            setattr(made, attribute, names)
    for module, name in _NAME_TABLES:
        table = getattr(sys.modules.get(module), name, {})
        if base in table:
            table[made] = table[base]


def _mixin_for(base: type) -> type[Distributed]:
    if hasattr(base, "_compute_gradients") and hasattr(base, "get_gradients"):
        return Keras2Legacy
    return Keras2 if hasattr(base, "compute_gradients") else Keras3


def _distributed_class(base: type, options: Options) -> type:
    reduce_before_scaling()
    made = type(base.__name__, (_mixin_for(base), base), {"__module__": "horovod._keras", "_hvd_options": options})
    _save_as(made, base)
    return made


def _check_accumulation(optimizer: Any, options: Options) -> None:
    """ValueError where both Keras and Horovod would add up gradients: the one counts the other's steps."""
    steps = getattr(getattr(optimizer, "inner_optimizer", optimizer), "gradient_accumulation_steps", None)
    if steps and options.backward_passes_per_step > 1:
        raise ValueError(
            f"backward_passes_per_step={options.backward_passes_per_step} of hvd.DistributedOptimizer and "
            f"gradient_accumulation_steps={steps} of the optimizer both add up gradients: use one of them"
        )


def create_distributed_optimizer(optimizer: Any, options: Options) -> Any:
    """A new optimizer with the class name and the configuration of `optimizer`. ValueError for a wrapped one."""
    if isinstance(optimizer, type):
        name = optimizer.__name__
        raise ValueError(f"hvd.DistributedOptimizer: expected an optimizer, got the class {name}: make one, {name}()")
    if is_distributed(optimizer):
        raise ValueError(
            f"this {type(optimizer).__name__} is a hvd.DistributedOptimizer already; wrap it once only: use it as it is"
        )
    if not hasattr(optimizer, "get_config"):
        raise ValueError(f"hvd.DistributedOptimizer: expected an optimizer, got {optimizer!r}")
    _check_accumulation(optimizer, options)
    made: Any = _distributed_class(type(optimizer), options)
    return made.from_config(optimizer.get_config())


def distribute_in_place(optimizer: Any, options: Options) -> Any:
    """Makes this very optimizer a distributed one: it keeps its variables."""
    if not isinstance(optimizer, Distributed):
        optimizer.__class__ = _distributed_class(type(optimizer), options)
        optimizer._hvd_set_up()
    return optimizer
