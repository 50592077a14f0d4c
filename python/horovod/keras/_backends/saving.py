"""Loading models whose optimizer is to be a distributed one."""

from __future__ import annotations

from typing import Any

from horovod.keras._backends.optimizer import Backend, distribute_in_place
from horovod.keras._backends.options import Options

__all__ = ["load_model"]


def load_model(
    keras: Any, filepath: Any, custom_optimizers: Any, custom_objects: Any, options: Options, backend: Backend
) -> Any:
    """Loads a model and makes the optimizer that came with it a distributed one, which keeps its variables."""
    objects = {optimizer.__name__: optimizer for optimizer in custom_optimizers or ()}
    objects.update(custom_objects or {})
    model = keras.models.load_model(filepath, custom_objects=objects or None)
    if getattr(model, "optimizer", None) is not None:
        distribute_in_place(model.optimizer, options, backend)
    return model
