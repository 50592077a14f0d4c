"""The callbacks of elastic training, for any Keras. `state` is any object with commit(), `batch` and `epoch`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from horovod._common.not_built import not_built

__all__ = ["CommitState", "UpdateBatchState", "UpdateEpochState", "make_classes"]

Logs = dict[str, Any] | None

_END_OF_EPOCH = "the rest of an epoch is done"  # a value of model.stop_training, which other callbacks set to True


class CommitState:
    """Calls state.commit() after every `batches_per_commit` batches and at the end of each epoch.

    `state`: any object with commit(). ValueError for `batches_per_commit` below 1.
    """

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        super().__init__()
        if batches_per_commit < 1:
            raise ValueError(f"CommitStateCallback: batches_per_commit must be at least 1, got {batches_per_commit}")
        self.state = state
        self.batches_per_commit = batches_per_commit
        self.batches_remaining = batches_per_commit

    def on_train_begin(self, logs: Logs = None) -> None:
        del logs
        self.batches_remaining = self.batches_per_commit

    def on_batch_end(self, batch: int, logs: Logs = None) -> None:
        del batch, logs
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self.batches_remaining = self.batches_per_commit
            self.state.commit()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        del epoch, logs
        self.state.commit()


class UpdateBatchState:
    """Sets `state.batch` to the number of the batch; shortens an interrupted epoch by the batches that are done.

    `state`: any object with `batch`. The data determines which rows the remaining batches have: Keras starts them from
    the beginning. An epoch of unknown length is not shortened.
    """

    model: Any
    params: dict[str, Any]

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self._done = 0  # batches of this epoch before the reset
        self._steps: int | None = None  # of a whole epoch, while one is shortened

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        del epoch, logs
        self._done, self._steps = 0, None  # an exception may have ended the last fit() within an epoch
        steps = self.params.get("steps")
        if self.state.batch > 0 and steps:
            self._done, self._steps = self.state.batch, steps
            self.params["steps"] = steps - self._done

    def on_batch_end(self, batch: int, logs: Logs = None) -> None:
        del logs
        self.state.batch = self._done + batch
        # Keras uses params only for its progress bar; it ends an epoch if stop_training is set.
        if self._steps is not None and batch + 1 >= self._steps - self._done and not self.model.stop_training:
            self.model.stop_training = _END_OF_EPOCH

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        del epoch, logs
        self.state.batch = 0
        if self._steps is not None:
            self.params["steps"] = self._steps
            self._done, self._steps = 0, None
            if self.model.stop_training is _END_OF_EPOCH:
                self.model.stop_training = False


class UpdateEpochState:
    """Counts the finished epochs of all calls of fit() in `state.epoch`. `state`: any object with `epoch`."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self.initial_epoch = state.epoch

    def on_train_begin(self, logs: Logs = None) -> None:
        del logs
        self.initial_epoch = self.state.epoch

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        del logs
        self.state.epoch = self.initial_epoch + epoch + 1


def make_classes(keras: Any, module: str) -> tuple[Any, Any, Any, Any, Any]:
    """The names of a public module: three callbacks, and KerasState and run, which raise NotImplementedError."""

    def make(name: str, mixin: type) -> Any:
        return type(name, (mixin, keras.callbacks.Callback), {"__module__": module, "__doc__": mixin.__doc__})

    class KerasState:
        """The state of `model` and `optimizer` that elastic training restores. Not built yet: NotImplementedError."""

        def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
            del model, optimizer, kwargs
            not_built(f"{module}.KerasState")

    def run(func: Callable[..., Any]) -> Callable[..., Any]:
        """Decorates `func`, an elastic training function. Not built yet: NotImplementedError."""
        del func
        not_built(f"{module}.run")

    return (
        make("CommitStateCallback", CommitState),
        make("UpdateBatchStateCallback", UpdateBatchState),
        make("UpdateEpochStateCallback", UpdateEpochState),
        KerasState,
        run,
    )
