"""Elastic training: what survives when a collective fails or ranks change, and the loop that goes on from it.

`horovodrun --min-np` starts a job whose ranks come and go; elsewhere the same scripts run on ranks that stay.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from horovod._keras.elastic import EagerVariables, ModelState
from horovod.common.elastic import ObjectState, restart_session, run_fn
from horovod.common.exceptions import HorovodInternalError
from horovod.tensorflow._session import basics
from horovod.tensorflow.functions import (
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
    session_or_default,
)

__all__ = ["TensorFlowKerasState", "TensorFlowState", "run"]


@contextlib.contextmanager
def _internal_errors() -> Iterator[None]:
    """TensorFlow raises an UnknownError for a collective that failed: a HorovodInternalError to elastic training."""
    try:
        yield
    except tf.errors.UnknownError as error:
        if "Horovod" not in str(error):  # what the operations say first
            raise
        raise HorovodInternalError(str(error)) from error


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a training function `func(state, ...)` that is called again, from the last commit, after a failure.

    `state`: a TensorFlowState or a TensorFlowKerasState. When a collective fails, Horovod is shut down and initialised
    again, the state returns to its last commit, and `func` is called anew; it gives what `func` gives.
    """
    return run_fn(_internal_errors()(func), restart_session)


class _Eager(EagerVariables):
    def broadcast(self, variables: Sequence[Any]) -> None:
        with _internal_errors():
            broadcast_variables(variables, root_rank=0)


class _Graph:
    """The values of a graph's variables in a session. The ops are made once for each list of variables."""

    def __init__(self, session: Callable[[], Any]) -> None:
        self._session = session
        self._broadcasts: dict[tuple[int, ...], Any] = {}

    def read(self, variables: Sequence[Any]) -> list[Any]:
        values: list[Any] = self._session().run(list(variables))
        return values

    def write(self, variables: Sequence[Any], values: Sequence[Any]) -> None:
        for variable, value in zip(variables, values, strict=True):
            variable.load(value, self._session())

    def prepare(self, variables: Sequence[Any]) -> None:
        key = tuple(map(id, variables))
        if key not in self._broadcasts:
            self._broadcasts[key] = broadcast_variables(variables, root_rank=0)

    def broadcast(self, variables: Sequence[Any]) -> None:
        self.prepare(variables)
        with _internal_errors():
            self._session().run(self._broadcasts[tuple(map(id, variables))])


def _bcast_object(session: Any) -> Callable[[Any], Any]:
    # In a graph the ops are made now, once: it may be finalized before the first commit.
    in_graph = None if tf.executing_eagerly() else broadcast_object_fn(session=session, name="elastic_state")

    def bcast_object(obj: Any) -> Any:
        with _internal_errors():
            return broadcast_object(obj, session=session) if in_graph is None else in_graph(obj)

    return bcast_object


class TensorFlowState(ObjectState):
    """Variables, and any other objects as attributes: `TensorFlowState(variables=..., epoch=0, batch=0)`.

    `variables`: all global variables of the graph where none are given. `session` runs the ops of a TF1 graph; without
    one the default session. The copies of save() are numpy arrays, those of sync() too.
    """

    def __init__(self, variables: Sequence[Any] | None = None, session: Any = None, **kwargs: Any) -> None:
        self.variables = list(variables if variables is not None else tf.compat.v1.global_variables())
        self.session = session
        eager = tf.executing_eagerly()
        self._store = _Eager() if eager else _Graph(lambda: session_or_default(session, "TensorFlowState"))
        self._store.prepare(self.variables)
        self._saved_values: list[Any] = []
        super().__init__(_bcast_object(session), basics.rank, **kwargs)
        with contextlib.nullcontext() if eager else contextlib.suppress(tf.errors.FailedPreconditionError):
            self.save()  # variables of a graph may have no values yet

    def save(self) -> None:
        self._saved_values = self._store.read(self.variables)
        super().save()

    def restore(self) -> None:
        if self._saved_values:
            self._store.write(self.variables, self._saved_values)
        super().restore()

    def sync(self) -> None:
        """Every rank's variables become rank 0's, and other attributes what rank 0 saved last; all of it is saved."""
        self._store.broadcast(self.variables)
        super().sync()
        self.save()


class TensorFlowKerasState(ModelState):
    """A tf.keras model, its optimizer, and any other objects as attributes.

    `optimizer`: the model's own where none is given. `backend`: the Keras backend module whose session runs the graphs
    of TF1-style training; without one it is the default session, or Keras 2's. ValueError for a model that is not
    built: it has no variables yet.
    """

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
        eager = tf.executing_eagerly()
        get_session = getattr(backend, "get_session", None)  # tf.keras.backend has lost it
        session = get_session() if get_session is not None and not eager else None
        store = _Eager() if eager else _Graph(lambda: session_or_default(session, "TensorFlowKerasState"))
        super().__init__(store, model, optimizer, _bcast_object(session), basics.rank, **kwargs)
