"""What horovod.keras is made of, one module for each backend that Keras computes with."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["load"]

_BACKENDS = ("tensorflow", "torch", "jax")


def load(keras: Any) -> Any:
    """The module for the backend that Keras was imported with. ImportError for one that Horovod does not serve."""
    name = keras.backend.backend()
    if name not in _BACKENDS:
        raise ImportError(
            f"horovod.keras: Keras runs on its backend {name!r}; Horovod works with {', '.join(_BACKENDS)}. Set the "
            "environment variable KERAS_BACKEND to one of them before keras is imported"
        )
    return importlib.import_module(f"horovod.keras._backends.{name}")
