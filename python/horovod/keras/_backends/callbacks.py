"""What the callbacks do on Keras 3's own backends: mixins that come before Keras' Callback class."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from horovod._common import learning_rate
from horovod._common.learning_rate import Logs
from horovod._common.native import core
from horovod.keras._backends.optimizer import is_distributed

__all__ = ["Collectives", "bound_to", "refuse_global_variables"]


class Collectives:
    """What the callbacks need of a backend."""

    def broadcast_variables(self, variables: Sequence[Any], root_rank: int) -> None:
        """Overwrites Keras variables with those of global rank `root_rank`; matched by position."""
        raise NotImplementedError

    def average(self, values: Sequence[Any], names: Sequence[str]) -> list[Any]:
        """The averages over all ranks, as arrays of float64; matched by name."""
        raise NotImplementedError

    def compiles_steps(self, model: Any) -> bool:
        """Whether a training step is compiled, so that Python numbers in it are constants."""
        raise NotImplementedError


def refuse_global_variables(root_rank: int) -> None:
    """RuntimeError: variables are not global."""
    raise RuntimeError(
        f"hvd.broadcast_global_variables({root_rank}): Keras 3 has no global variables. Pass "
        f"hvd.callbacks.BroadcastGlobalVariablesCallback({root_rank}) to model.fit(), or broadcast single values with "
        "hvd.broadcast(value, root_rank)"
    )


def _as_variables(local_variables: Any) -> list[Any]:
    if local_variables is None:
        return []
    given = [local_variables] if hasattr(local_variables, "assign") else local_variables
    if not isinstance(given, Collection) or not all(hasattr(variable, "assign") for variable in given):
        raise ValueError(f"local_variables must be a keras.Variable or a collection of them, got {local_variables!r}")
    return list(given)


def _is_seed(variable: Any) -> bool:
    """The state of Keras 3's random generators belongs to a rank: dropout must differ between ranks."""
    return "seed_generator" in str(getattr(variable, "path", ""))


class _Bound:
    collectives: Collectives
    model: Any


class _BroadcastGlobalVariables(_Bound):
    """Gives all ranks the model and the optimizer of `root_rank`, once: the first batch makes the variables."""

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
        self._local[id(var)] = var

    def on_train_begin(self, logs: Logs = None) -> None:
        del logs
        if core.size() > 1 and not is_distributed(self.model.optimizer):
            warnings.warn(
                f"the model was compiled with a plain {type(self.model.optimizer).__name__}: every rank trains for "
                "itself. Pass hvd.DistributedOptimizer(optimizer) to model.compile()",
                stacklevel=2,
            )

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        del batch, logs
        if self.broadcast_done:
            return
        model = self.model  # on JAX, this brings the variables up to date
        shared = [v for v in model.variables if id(v) not in self._local] + list(model.optimizer.variables)
        self.collectives.broadcast_variables([v for v in shared if not _is_seed(v)], self.root_rank)
        self.broadcast_done = True

    on_batch_end = on_train_batch_end


class _MetricAverage(_Bound):
    """Replaces every entry of the logs at the end of an epoch by its average over all ranks."""

    def __init__(self, device: str = "") -> None:
        super().__init__()
        self.device = device

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        del epoch
        if not logs:
            return
        names = sorted(logs)
        values = [np.asarray(logs[name], dtype=np.float64) for name in names]
        averages = self.collectives.average(values, [f"MetricAverage_{name}" for name in names])
        for name, average in zip(names, averages, strict=True):
            logs[name] = float(average) if average.ndim == 0 else average


class _Schedule(_Bound):
    def _takes_effect(self, momentum: Any) -> bool:
        return hasattr(momentum, "assign") or not self.collectives.compiles_steps(self.model)


def bound_to(collectives: Collectives) -> tuple[type, type, type, type]:
    """The mixins for one backend: broadcast, average, schedule, warm-up."""
    attributes = {"collectives": collectives, "__module__": __name__}
    return (
        type("BroadcastGlobalVariables", (_BroadcastGlobalVariables,), attributes),
        type("MetricAverage", (_MetricAverage,), attributes),
        type("LearningRateSchedule", (_Schedule, learning_rate.LearningRateSchedule), attributes),
        type("LearningRateWarmup", (_Schedule, learning_rate.LearningRateWarmup), attributes),
    )
