"""What the callbacks do, for any Keras: mixins that come before that Keras' Callback class."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import tensorflow as tf

from horovod.tensorflow._collectives import allreduce
from horovod.tensorflow._session import basics
from horovod.tensorflow.functions import broadcast_global_variables, broadcast_variables
from horovod.tensorflow.util import _executing_eagerly, variable_key

Logs = dict[str, Any] | None


class BroadcastGlobalVariables:
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

    def set_model(self, model: Any) -> None:
        """Keeps Keras from compiling the train step, which it would do by itself where there is a GPU."""
        super().set_model(model)  # type: ignore[misc]
        if getattr(model, "jit_compile", False):
            model.jit_compile = False

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
                tf.compat.v1.keras.backend.get_session().run(broadcast_global_variables(self.root_rank))
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


class MetricAverage:
    """Replaces every entry of the logs at the end of an epoch by its average over all ranks."""

    def __init__(self, device: str = "") -> None:
        super().__init__()
        self.device = device

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        del epoch
        if not logs:
            return
        with tf.device(self.device):
            for name, value in sorted(logs.items()):
                average = allreduce(tf.constant(value, dtype=tf.float64), name=f"MetricAverage_{name}")
                logs[name] = type(value)(_value(average)) if isinstance(value, float) else _value(average)


def _value(tensor: Any) -> Any:
    if hasattr(tensor, "numpy"):
        return tensor.numpy()
    return tf.compat.v1.keras.backend.get_session().run(tensor)


def _get(variable: Any) -> float:
    return float(np.asarray(variable.numpy() if hasattr(variable, "numpy") else variable))


def _learning_rate_of(optimizer: Any) -> Any:
    return optimizer.learning_rate if hasattr(optimizer, "learning_rate") else optimizer.lr


def _set_learning_rate(optimizer: Any, value: float) -> None:
    current = _learning_rate_of(optimizer)
    if hasattr(current, "assign"):
        current.assign(value)
    else:
        optimizer.learning_rate = value


class LearningRateSchedule:
    """Sets the learning rate to `initial_lr` times a multiplier, each epoch (`staircase`) or each batch.

    `multiplier`: a function of the epoch, which has a fraction without `staircase`, or a number m for m^epochs. Works
    from `start_epoch` until before `end_epoch`. `momentum_correction` scales the momentum for the batch that changes
    the rate, where the optimizer has one that can be changed.
    """

    model: Any
    params: Any

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        if initial_lr is None:
            raise ValueError("Parameter `initial_lr` is required")
        self.initial_lr = initial_lr
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.current_epoch = 0
        self.restore_momentum: float | None = None
        if callable(multiplier):
            self.multiplier: Callable[[float], float] = multiplier
        else:
            base = float(multiplier)
            self.multiplier = lambda epoch: base ** (epoch - self.start_epoch)

    def _find_steps(self) -> int:
        params = self.params or {}
        if params.get("steps"):
            return int(params["steps"])
        if params.get("samples") and params.get("batch_size"):
            return int(params["samples"]) // int(params["batch_size"])
        raise ValueError(
            f"Could not autodetect the number of steps per epoch. Please specify the steps_per_epoch parameter to "
            f"{type(self).__name__}()."
        )

    def _adjust(self, epoch: float) -> None:
        optimizer = self.model.optimizer
        old = _get(_learning_rate_of(optimizer))
        new = self.initial_lr * self.multiplier(epoch)
        _set_learning_rate(optimizer, new)
        momentum = getattr(optimizer, "momentum", None)
        if self.momentum_correction and momentum is not None and old > 0:
            self.restore_momentum = _get(momentum)
            self._set_momentum(self.restore_momentum * new / old)

    def _set_momentum(self, value: float) -> None:
        momentum = self.model.optimizer.momentum
        if hasattr(momentum, "assign"):
            momentum.assign(value)
        else:
            self.model.optimizer.momentum = value

    def on_train_begin(self, logs: Logs = None) -> None:
        del logs
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = self._find_steps()

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        del logs
        self.current_epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        del logs
        is_over = self.end_epoch is not None and self.current_epoch >= self.end_epoch
        if self.current_epoch < self.start_epoch or is_over:
            return
        if not self.staircase:
            self._adjust(self.current_epoch + float(batch) / (self.steps_per_epoch or 1))
        elif batch == 0:
            self._adjust(self.current_epoch)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        del batch, logs
        if self.restore_momentum is not None:
            self._set_momentum(self.restore_momentum)
            self.restore_momentum = None

    on_batch_begin = on_train_batch_begin
    on_batch_end = on_train_batch_end

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        del epoch
        if logs is not None:
            logs["lr"] = _get(_learning_rate_of(self.model.optimizer))


class LearningRateWarmup(LearningRateSchedule):
    """Raises the learning rate from `initial_lr` / size to `initial_lr` over the first epochs, batch by batch."""

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        def multiplier(epoch: float) -> float:
            epoch += 1.0 / (self.steps_per_epoch or 1)
            return 1.0 / basics.size() * (epoch * (basics.size() - 1) / warmup_epochs + 1)

        super().__init__(
            initial_lr,
            multiplier,
            start_epoch=0,
            end_epoch=warmup_epochs,
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        super().on_epoch_end(epoch, logs)
        if self.end_epoch is not None and epoch == self.end_epoch - 1 and self.verbose > 0 and basics.rank() == 0:
            rate = _get(_learning_rate_of(self.model.optimizer))
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {rate:g}.")
