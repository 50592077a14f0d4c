"""Elastic training: the number of ranks changes during a job. Not built yet: every name raises NotImplementedError."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from horovod._common.not_built import not_built

__all__ = ["TensorFlowKerasState", "TensorFlowState", "run"]


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates `func`, an elastic training function. Not built yet: NotImplementedError."""
    del func
    not_built("horovod.tensorflow.elastic.run")


class TensorFlowKerasState:
    """The state of `model` and `optimizer` that elastic training restores; `backend` is Keras. Not built yet:
    NotImplementedError.
    """

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
        del model, optimizer, backend, kwargs
        not_built("horovod.tensorflow.elastic.TensorFlowKerasState")


class TensorFlowState:
    """The `variables`, of a `session` of TF1, that elastic training restores. Not built yet: NotImplementedError."""

    def __init__(self, variables: Any = None, session: Any = None, **kwargs: Any) -> None:
        del variables, session, kwargs
        not_built("horovod.tensorflow.elastic.TensorFlowState")
