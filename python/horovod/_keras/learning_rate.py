"""Learning rates that change with epochs and batches: mixins for the Callback class of any Keras."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from horovod._common.native import core
from horovod._keras import private
from horovod._keras.backend import Backend

__all__ = ["LearningRateSchedule", "LearningRateWarmup", "Logs", "with_momentum"]

Logs = dict[str, Any] | None


def _get(variable: Any) -> float:
    return float(np.asarray(variable.numpy() if hasattr(variable, "numpy") else variable))


def _learning_rate_of(optimizer: Any) -> Any:
    return optimizer.learning_rate if hasattr(optimizer, "learning_rate") else optimizer.lr


def _set_learning_rate(optimizer: Any, value: float) -> None:
    own = private.learning_rate_function(optimizer)
    if own is not None:  # some versions of Keras allow to set it, and overwrite the value
        raise ValueError(
            f"the learning rate of this {type(optimizer).__name__} is a {type(own).__name__}, which no callback can "
            f"set: give the optimizer a number, or train without Horovod's learning-rate callbacks"
        )
    current = _learning_rate_of(optimizer)
    if hasattr(current, "assign"):
        current.assign(value)
    else:
        optimizer.learning_rate = value


def with_momentum(optimizer: Any) -> Any:
    """The optimizer that has the momentum: the inner one of a LossScaleOptimizer."""
    return getattr(optimizer, "inner_optimizer", optimizer)


class LearningRateSchedule:
    """Sets the learning rate to `initial_lr` times a multiplier, in every epoch or in every batch.

    Arguments:
        initial_lr: the rate that is multiplied.
        multiplier: a function of the epoch that returns a factor; or a number m for m ** (epoch - start_epoch).
        start_epoch, end_epoch: it works from the first one until before the second; None: to the end of training.
        staircase: change the rate once an epoch; else in every batch, and epochs have fractions.
        momentum_correction: multiply the momentum by new rate / old rate for the batch in which the rate changes, if
            the optimizer has a momentum that can be changed.
        steps_per_epoch: needed without `staircase` if Keras does not know it.

    ValueError: no `initial_lr`, unknown steps per epoch, or an optimizer whose rate is a schedule.
    """

    backend: Backend
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
        momentum = getattr(with_momentum(optimizer), "momentum", None)
        if self.momentum_correction and momentum is not None and old > 0 and self._takes_effect(momentum):
            self.restore_momentum = _get(momentum)
            self._set_momentum(self.restore_momentum * new / old)

    def set_model(self, model: Any) -> None:
        super().set_model(model)  # type: ignore[misc]
        if self.momentum_correction:
            self.backend.prepare_momentum(model)  # before fit() traces the train step

    def _takes_effect(self, momentum: Any) -> bool:
        """Whether the next step uses a momentum that is set now. A number is a constant in compiled steps."""
        return hasattr(momentum, "assign") or not self.backend.compiles_numbers(self.model)

    def _set_momentum(self, value: float) -> None:
        optimizer = with_momentum(self.model.optimizer)
        momentum = optimizer.momentum
        if hasattr(momentum, "assign"):
            momentum.assign(value)
        else:
            optimizer.momentum = momentum.changed(value) if hasattr(momentum, "changed") else value

    def on_train_begin(self, logs: Logs = None) -> None:
        super().on_train_begin(logs)  # type: ignore[misc]
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
    """Raises the learning rate from `initial_lr` / size to `initial_lr`, batch by batch over the first `warmup_epochs`.

    `verbose`: 1 prints a line on rank 0 at the end. `momentum_correction`, `steps_per_epoch` and errors as for
    LearningRateScheduleCallback().
    """

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
            return 1.0 / core.size() * (epoch * (core.size() - 1) / warmup_epochs + 1)

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
        if self.end_epoch is not None and epoch == self.end_epoch - 1 and self.verbose > 0 and core.rank() == 0:
            rate = _get(_learning_rate_of(self.model.optimizer))
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {rate:g}.")
