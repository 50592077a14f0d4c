"""The callbacks, for any Keras and backend: mixins, and the classes that a public module makes of them."""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection
from typing import Any

import numpy as np

from horovod._common.arrays import ArrayCollectives
from horovod._common.native import core
from horovod._keras import learning_rate
from horovod._keras.backend import Backend, with_backend_argument
from horovod._keras.checks import has_own_train_step, is_distributed, with_inner
from horovod._keras.learning_rate import Logs

__all__ = ["make_classes"]


class HorovodCallback:
    """A mixin of all callbacks: checks and prepares the model before training begins."""

    backend: Backend
    model: Any

    def set_model(self, model: Any) -> None:
        super().set_model(model)  # type: ignore[misc]
        self.backend.prepare(model)

    def on_train_begin(self, logs: Logs = None) -> None:
        _warn_if_not_distributed(self.model)
        for optimizer in with_inner(getattr(self.model, "optimizer", None)):
            if hasattr(optimizer, "_hvd_expect_unreduced"):
                optimizer._hvd_expect_unreduced()
        super().on_train_begin(logs)  # type: ignore[misc]


def _warn_if_not_distributed(model: Any) -> None:
    """Warns, once for a model, if fit() would train the ranks independently."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None or not core.is_initialized() or core.size() == 1:
        return
    if is_distributed(optimizer) or has_own_train_step(model) or vars(model).get("_hvd_has_warned"):
        return
    vars(model)["_hvd_has_warned"] = True
    warnings.warn(
        f"the model was compiled with a plain {type(optimizer).__name__}: its gradients are not averaged over the "
        f"{core.size()} ranks, so each trains a model of its own. Use "
        f"model.compile(optimizer=hvd.DistributedOptimizer(optimizer), ...)",
        UserWarning,
        stacklevel=2,
    )


def _as_variables(local_variables: Any) -> list[Any]:
    if local_variables is None:
        return []
    given = [local_variables] if hasattr(local_variables, "assign") else local_variables
    if not isinstance(given, Collection) or not all(hasattr(variable, "assign") for variable in given):
        raise ValueError(f"local_variables must be a variable or a collection of variables, got {local_variables!r}")
    return list(given)


def is_seed(variable: Any) -> bool:
    """Whether it is the state of a random generator of Keras 3, which must differ between ranks, for dropout."""
    return "seed_generator" in str(getattr(variable, "path", ""))


class BroadcastGlobalVariables(HorovodCallback):
    """Overwrites model and optimizer with those of `root_rank`, once: after the first batch, which makes the variables.

    `root_rank`: a global rank. `device`: on TensorFlow the tf.device of the broadcasts. `local_variables`: a variable
    or a collection of them that are left out; ValueError for anything else. Put it first in the list of callbacks.
    """

    def __init__(self, root_rank: int, device: str = "", local_variables: Any = None) -> None:
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self.broadcast_done = False
        self._local: dict[int, Any] = {}
        for variable in _as_variables(local_variables):
            self.register_local_var(variable)

    def register_local_var(self, var: Any) -> None:
        """Leaves the variable `var` out of the broadcast."""
        self._local[self.backend.LocalVariables.key(var)] = var

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        del batch, logs
        if not self.broadcast_done:
            self.backend.broadcast_variables(self._variables(), self.root_rank, self.device)
            self.broadcast_done = True

    on_batch_end = on_train_batch_end

    def _variables(self) -> list[Any]:
        model = self.model  # on JAX, this property updates the variables
        shared = [v for v in model.variables if self.backend.LocalVariables.key(v) not in self._local]
        optimizer = getattr(model, "optimizer", None)
        if optimizer is not None:
            shared += list(optimizer.variables() if callable(optimizer.variables) else optimizer.variables)
        return [variable for variable in shared if not is_seed(variable)]


class MetricAverage(HorovodCallback):
    """At the end of an epoch, replaces every entry of the logs by its average over all ranks.

    Put it before callbacks that use metrics. `device` is accepted for compatibility. ValueError, on all ranks, if they
    have different metrics.
    """

    def __init__(self, device: str = "") -> None:
        super().__init__()
        self.device = device

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        del epoch
        logs = {} if logs is None else logs
        values = {name: np.array(logs[name], np.float64, order="C") for name in sorted(logs)}
        collectives = ArrayCollectives("keras")
        mine = json.dumps([[name, list(value.shape)] for name, value in values.items()]) + "\n"
        of_all = collectives.allgather(np.frombuffer(mine.encode(), np.uint8), "MetricAverage")
        _check_same([json.loads(line) for line in of_all.tobytes().splitlines()])
        names = [f"MetricAverage_{name}" for name in values]
        collectives.allreduce_(list(values.values()), names, core.REDUCE_AVERAGE)
        for name, average in values.items():
            logs[name] = float(average) if average.ndim == 0 else average


def _check_same(of_all: list[list[Any]]) -> None:
    """ValueError, on every rank, if ranks have different metrics: they would wait for each other."""
    for rank, of_rank in enumerate(of_all):
        for one, other, having, lacking in ((of_all[0], of_rank, 0, rank), (of_rank, of_all[0], rank, 0)):
            missing = [metric[0] for metric in one if metric not in other]
            if missing:
                raise ValueError(
                    f"MetricAverageCallback: {', '.join(missing)} of rank {having} cannot be averaged, rank {lacking} "
                    f"has no such metric: give every rank the same metrics, and validation data if any has some"
                )


class LearningRateSchedule(HorovodCallback, learning_rate.LearningRateSchedule):
    __doc__ = learning_rate.LearningRateSchedule.__doc__


class LearningRateWarmup(HorovodCallback, learning_rate.LearningRateWarmup):
    __doc__ = learning_rate.LearningRateWarmup.__doc__


BroadcastGlobalVariablesCallbackImpl = with_backend_argument(BroadcastGlobalVariables)
MetricAverageCallbackImpl = with_backend_argument(MetricAverage)
LearningRateScheduleCallbackImpl = with_backend_argument(LearningRateSchedule)
LearningRateWarmupCallbackImpl = with_backend_argument(LearningRateWarmup)


class BestModel:
    """A ModelCheckpoint that saves only the best model. Set its attribute `filepath` before fit(), else ValueError.

    Arguments as for keras.callbacks.ModelCheckpoint: `monitor`, `verbose`, `save_weights_only`, `mode`, `save_freq`.
    """

    filepath: Any

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: str | int = "epoch",
    ) -> None:
        base: Any = super()
        base.__init__(
            # Keras 3 refuses other suffixes in the constructor.
            filepath="best.weights.h5" if save_weights_only else "best.keras",
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=save_weights_only,
            mode=mode,
            save_freq=save_freq,
        )
        self.filepath = None

    def on_train_begin(self, logs: Logs = None) -> None:
        if self.filepath is None:
            raise ValueError("BestModelCheckpoint: set its attribute `filepath`, which ends in .keras, before fit()")
        super().on_train_begin(logs)  # type: ignore[misc]


def make_classes(keras: Any, backend: Backend, module: str) -> tuple[Any, Any, Any, Any, Any]:
    """The callbacks of a public module: broadcast, metrics, schedule, warm-up, best model."""
    callback, checkpoint = keras.callbacks.Callback, keras.callbacks.ModelCheckpoint

    def make(name: str, mixin: type, base: Any) -> Any:
        return type(name, (mixin, base), {"__module__": module, "__doc__": mixin.__doc__, "backend": backend})

    return (
        make("BroadcastGlobalVariablesCallback", BroadcastGlobalVariables, callback),
        make("MetricAverageCallback", MetricAverage, callback),
        make("LearningRateScheduleCallback", LearningRateSchedule, callback),
        make("LearningRateWarmupCallback", LearningRateWarmup, callback),
        make("BestModelCheckpoint", BestModel, checkpoint),
    )
