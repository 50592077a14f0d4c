"""The state and the callbacks of elastic training, for any Keras.

The callbacks' `state` is any object with `commit()`, `batch` and `epoch`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from horovod._common.array_objects import broadcast_object_of
from horovod._common.arrays import ArrayCollectives
from horovod._common.session import basics
from horovod._keras.backend import Backend, with_backend_argument
from horovod._keras.callbacks import is_seed
from horovod.common.elastic import Broadcast, ObjectState, restart_session, run_fn

__all__ = ["CommitState", "ModelState", "UpdateBatchState", "UpdateEpochState", "make_callbacks", "on_keras3"]

Logs = dict[str, Any] | None

_END_OF_EPOCH = "the rest of an epoch is done"  # a value of model.stop_training, which other callbacks set to True


class Store(Protocol):
    """Reads and writes the values of variables, and gives all ranks those of rank 0."""

    def prepare(self, variables: Sequence[Any]) -> None: ...
    def read(self, variables: Sequence[Any]) -> list[Any]: ...
    def write(self, variables: Sequence[Any], values: Sequence[Any]) -> None: ...
    def broadcast(self, variables: Sequence[Any]) -> None: ...


class ModelState(ObjectState):
    """A model, its optimizer, and any other objects as attributes.

    ValueError for a model that is not built: it has no variables yet. The optimizer's are made here, so that all ranks
    have the same ones.
    """

    def __init__(
        self,
        store: Store,
        model: Any,
        optimizer: Any,
        bcast_object: Broadcast,
        get_rank: Callable[[], int],
        **kwargs: Any,
    ) -> None:
        if not model.built:
            raise ValueError(
                f"the model {model.name!r} must be built before it becomes part of an elastic state: call it once, or "
                "its build() with the shape of its input"
            )
        self.model = model
        self.optimizer = optimizer if optimizer is not None else getattr(model, "optimizer", None)
        _build(self.optimizer, model)
        self._store = store
        store.prepare(self._shared())
        self._saved_values: list[Any] = []
        super().__init__(bcast_object, get_rank, **kwargs)
        self.save()

    def _variables(self) -> list[Any]:
        owners = [self.model] if self.optimizer is None else [self.model, self.optimizer]
        lists = [owner.variables() if callable(owner.variables) else owner.variables for owner in owners]
        return [variable for variables in lists for variable in variables]

    def _shared(self) -> list[Any]:
        return [variable for variable in self._variables() if not is_seed(variable)]

    def save(self) -> None:
        self._saved_values = self._store.read(self._variables())
        super().save()

    def restore(self) -> None:
        self._store.write(self._variables(), self._saved_values)
        super().restore()

    def sync(self) -> None:
        """Every rank's model and optimizer become rank 0's, other attributes what rank 0 saved last; all is saved."""
        self._store.broadcast(self._shared())
        super().sync()
        self.save()


def _build(optimizer: Any, model: Any) -> None:
    if optimizer is None or getattr(optimizer, "built", False):
        return
    build = getattr(optimizer, "build", None) or getattr(optimizer, "_create_all_weights", None)
    if build is not None:
        build(model.trainable_variables)


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
            self._commit()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        del epoch, logs
        self._commit()

    def _commit(self) -> None:
        getattr(self, "model", None)  # on JAX, asking for the model brings its variables up to date
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


CommitStateCallbackImpl = with_backend_argument(CommitState)
UpdateBatchStateCallbackImpl = with_backend_argument(UpdateBatchState)
UpdateEpochStateCallbackImpl = with_backend_argument(UpdateEpochState)


class EagerVariables:
    """The values of variables that exist outside of graphs. Derived classes broadcast them."""

    def prepare(self, variables: Sequence[Any]) -> None:
        pass

    def read(self, variables: Sequence[Any]) -> list[Any]:
        return [np.array(variable.numpy()) for variable in variables]

    def write(self, variables: Sequence[Any], values: Sequence[Any]) -> None:
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)


class _Keras3Store(EagerVariables):
    """Of Keras 3's variables, which are current between the steps of a compiled fit()."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def broadcast(self, variables: Sequence[Any]) -> None:
        self._backend.broadcast_variables(variables, 0, "")


def _bcast_object(obj: Any) -> Any:
    """Rank 0's object, on every rank."""
    return broadcast_object_of(ArrayCollectives("elastic"), obj, 0, "elastic", 0)


def on_keras3(backend: Backend) -> tuple[type, Callable[[Callable[..., Any]], Callable[..., Any]]]:
    """KerasState and run for Keras 3 on torch or JAX."""

    class KerasState(ModelState):
        """A model, its optimizer, and any other objects as attributes.

        `optimizer`: the model's own where none is given. ValueError for a model that is not built.
        """

        def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
            super().__init__(_Keras3Store(backend), model, optimizer, _bcast_object, basics.rank, **kwargs)

    def run(func: Callable[..., Any]) -> Callable[..., Any]:
        """Decorates a training function `func(state, ...)` that is called again, from the last commit, after a failure.

        When a collective fails (HorovodInternalError), Horovod is shut down and initialised again, the state returns to
        its last commit, and `func` is called anew; it gives what `func` gives.
        """
        return run_fn(func, restart_session)

    return KerasState, run


def make_callbacks(keras: Any, module: str) -> tuple[Any, Any, Any]:
    """The three callbacks of a public module."""

    def make(name: str, mixin: type) -> Any:
        return type(name, (mixin, keras.callbacks.Callback), {"__module__": module, "__doc__": mixin.__doc__})

    return (
        make("CommitStateCallback", CommitState),
        make("UpdateBatchStateCallback", UpdateBatchState),
        make("UpdateEpochStateCallback", UpdateEpochState),
    )
