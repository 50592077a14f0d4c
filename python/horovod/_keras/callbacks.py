"""What the callbacks do, for any Keras: mixins that come before that Keras' Callback class."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import tensorflow as tf

from horovod._common import learning_rate
from horovod._common.keras_checks import ChecksOptimizer
from horovod._common.learning_rate import Logs
from horovod._keras.momentum import ChangeableMomentum
from horovod.tensorflow._collectives import allreduce
from horovod.tensorflow._xla_support import problem as xla_problem
from horovod.tensorflow.functions import (
    allgather_object,
    broadcast_global_variables,
    broadcast_variables,
    session_or_default,
)
from horovod.tensorflow.util import _executing_eagerly, variable_key

__all__ = ["BroadcastGlobalVariables", "LearningRateSchedule", "LearningRateWarmup", "MetricAverage"]


class LeavesXla:
    """Mixed into all callbacks: keeps Keras from compiling what cannot be; on a GPU it would do that by itself."""

    def set_model(self, model: Any) -> None:
        super().set_model(model)  # type: ignore[misc]
        if getattr(model, "jit_compile", False) and xla_problem() is not None:
            model.jit_compile = False


class BroadcastGlobalVariables(LeavesXla, ChecksOptimizer):
    """Gives all ranks the model and the optimizer of `root_rank`, once: the first batch makes the variables."""

    model: Any

    def __init__(self, root_rank: int, device: str = "", local_variables: Any = None) -> None:
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self.broadcast_done = False
        self._local: dict[int, Any] = {}
        for variable in _as_variables(local_variables):
            self.register_local_var(variable)

    def register_local_var(self, var: Any) -> None:
        """`var` stays what it is on this rank."""
        self._local[variable_key(var)] = var

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        del batch, logs
        if self.broadcast_done:
            return
        with tf.device(self.device):
            if _executing_eagerly():
                broadcast_variables(self._variables(), self.root_rank)
            else:
                session_or_default(None, type(self).__name__).run(broadcast_global_variables(self.root_rank))
        self.broadcast_done = True

    on_batch_end = on_train_batch_end

    def _variables(self) -> list[Any]:
        shared = [v for v in self.model.variables if variable_key(v) not in self._local]
        optimizer = getattr(self.model, "optimizer", None)
        if optimizer is not None:
            shared += list(optimizer.variables() if callable(optimizer.variables) else optimizer.variables)
        return [v for v in shared if not _is_seed(v)]


def _is_seed(variable: Any) -> bool:
    """The state of Keras 3's random generators belongs to a rank: dropout must differ between ranks."""
    return "seed_generator" in str(getattr(variable, "path", ""))


def _as_variables(local_variables: Any) -> list[Any]:
    if local_variables is None:
        return []
    one = isinstance(local_variables, tf.Variable) or hasattr(local_variables, "assign")
    given = [local_variables] if one else local_variables
    if not isinstance(given, Collection) or not all(hasattr(variable, "assign") for variable in given):
        raise ValueError(f"local_variables must be a tf.Variable or a collection of them, got {local_variables!r}")
    return list(given)


class MetricAverage(LeavesXla, ChecksOptimizer):
    """Replaces every entry of the logs at the end of an epoch by its average over all ranks."""

    def __init__(self, device: str = "") -> None:
        super().__init__()
        self.device = device

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        del epoch
        logs = {} if logs is None else logs
        values = {name: np.asarray(value, np.float64) for name, value in sorted(logs.items())}
        with tf.device(self.device):
            if _executing_eagerly():
                _check_same(allgather_object([(name, value.shape) for name, value in values.items()]))
            for name, value in values.items():
                average = _value(allreduce(tf.constant(value), name=f"MetricAverage_{name}"))
                logs[name] = type(logs[name])(average) if isinstance(logs[name], float) else average


def _check_same(of_all: list[list[tuple[str, Any]]]) -> None:
    """ValueError, on every rank, when ranks have different metrics: they would wait for each other."""
    for rank, of_rank in enumerate(of_all):
        for one, other, having, lacking in ((of_all[0], of_rank, 0, rank), (of_rank, of_all[0], rank, 0)):
            missing = [name for name, shape in one if (name, shape) not in other]
            if missing:
                raise ValueError(
                    f"MetricAverageCallback: {', '.join(missing)} of rank {having} cannot be averaged, rank {lacking} "
                    f"has no such metric: give every rank the same metrics, and validation data if any has some"
                )


def _value(tensor: Any) -> Any:
    if hasattr(tensor, "numpy"):
        return tensor.numpy()
    return session_or_default(None, "MetricAverageCallback").run(tensor)


class LearningRateSchedule(LeavesXla, ChecksOptimizer, ChangeableMomentum, learning_rate.LearningRateSchedule):
    """The learning rate is initial_lr times a multiplier."""


class LearningRateWarmup(LeavesXla, ChecksOptimizer, ChangeableMomentum, learning_rate.LearningRateWarmup):
    """The learning rate rises to initial_lr over the first epochs."""
