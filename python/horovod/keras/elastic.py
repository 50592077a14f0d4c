"""Elastic training with keras: its callbacks. The rest is not built yet; the names say so when used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from horovod._common import keras_elastic as _shared
from horovod._common.not_built import not_built

__all__ = ["CommitStateCallback", "KerasState", "UpdateBatchStateCallback", "UpdateEpochStateCallback", "run"]

_Callback: Any = keras.callbacks.Callback


class CommitStateCallback(_shared.CommitState, _Callback):  # type: ignore[misc]
    """Commits the state every `batches_per_commit` batches, and at the end of each epoch."""


class UpdateBatchStateCallback(_shared.UpdateBatchState, _Callback):  # type: ignore[misc]
    """Keeps `state.batch`; an epoch that goes on after a reset is shorter by the batches that are done."""


class UpdateEpochStateCallback(_shared.UpdateEpochState, _Callback):  # type: ignore[misc]
    """Keeps `state.epoch`, counted over all calls of fit()."""


class KerasState:
    """What elastic training saves, restores and synchronises. Not built yet."""

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        del model, optimizer, kwargs
        not_built("horovod.keras.elastic.KerasState")


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates an elastic training function. Not built yet."""
    del func
    not_built("horovod.keras.elastic.run")
