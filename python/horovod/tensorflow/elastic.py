"""Elastic training: ranks that come and go. Not built yet; the names say so when used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from horovod._common.not_built import not_built

__all__ = ["TensorFlowKerasState", "TensorFlowState", "run"]


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates an elastic training function. Not built yet."""
    del func
    not_built("horovod.tensorflow.elastic.run")


class TensorFlowKerasState:
    """Model and optimizer that elastic training saves, restores and synchronises. Not built yet."""

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
        del model, optimizer, backend, kwargs
        not_built("horovod.tensorflow.elastic.TensorFlowKerasState")


class TensorFlowState:
    """Variables that elastic training saves, restores and synchronises. Not built yet."""

    def __init__(self, variables: Any = None, session: Any = None, **kwargs: Any) -> None:
        del variables, session, kwargs
        not_built("horovod.tensorflow.elastic.TensorFlowState")
