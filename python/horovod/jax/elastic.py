"""Elastic training: what survives when a collective fails or ranks change, and the loop that goes on from it.

`horovodrun --min-np` starts a job whose ranks come and go; elsewhere the same scripts run on ranks that stay. A session
that begins anew forgets what JAX has compiled, so the next step is compiled again.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any

from horovod.common.elastic import ObjectState, run_fn
from horovod.jax._session import basics, raise_failure, restart_session
from horovod.jax.functions import broadcast_object

__all__ = ["JaxState", "run"]

jax: Any = importlib.import_module("jax")


@contextlib.contextmanager
def _internal_errors() -> Iterator[None]:
    """JAX raises an error of its own for a collective that failed: a HorovodInternalError to elastic training."""
    try:
        yield
    except jax.errors.JaxRuntimeError:
        raise_failure()
        raise


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a training function `func(state, ...)` that is called again, from the last commit, after a failure.

    `state`: a JaxState. When a collective fails, also one of a compiled function, Horovod is shut down and initialised
    again, the state returns to its last commit, and `func` is called anew; it gives what `func` gives. Results that
    `func` has not waited for are not looked at: state.commit() waits for those that it keeps.
    """
    return run_fn(_internal_errors()(func), restart_session)


def _copy(value: Any) -> Any:
    """A tree with its own arrays: a step that donates its arguments deletes those that it was given."""
    return jax.tree_util.tree_map(lambda leaf: leaf.copy() if isinstance(leaf, jax.Array) else leaf, value)


class JaxState(ObjectState):
    """Trees of arrays, and any other objects that pickle takes, as attributes: `JaxState(params=..., epoch=0)`.

    What is committed is copied, so steps may donate their arguments.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(broadcast_object, basics.rank, **kwargs)

    def save(self) -> None:
        """Waits for the arrays first: what a failed program should have made is not kept."""
        made = {name: _copy(getattr(self, name)) for name in self._saved_state}
        jax.block_until_ready(made)
        self._saved_state = made

    def _assign_saved(self) -> None:
        for name, value in self._saved_state.items():
            setattr(self, name, _copy(value))
