"""What the callbacks of elastic training do, for any Keras: mixins that come before that Keras' Callback class.

`state` is any object with `commit()`, `batch` and `epoch`.
"""

from __future__ import annotations

from typing import Any

__all__ = ["CommitState", "UpdateBatchState", "UpdateEpochState"]

Logs = dict[str, Any] | None


class CommitState:
    """Commits the state every `batches_per_commit` batches, and at the end of each epoch."""

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
    """Keeps `state.batch`; an epoch that goes on after a reset is shorter by the batches that are done."""

    params: dict[str, Any]

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self._steps: int | None = None  # of a whole epoch, while one is shortened

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        del epoch, logs
        steps = self.params.get("steps")
        if self.state.batch > 0 and steps:
            self._steps = steps
            self.params["steps"] = steps - self.state.batch

    def on_batch_end(self, batch: int, logs: Logs = None) -> None:
        del logs
        self.state.batch = batch

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        del epoch, logs
        self.state.batch = 0
        if self._steps is not None:
            self.params["steps"], self._steps = self._steps, None


class UpdateEpochState:
    """Keeps `state.epoch`, counted over all calls of fit()."""

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
