"""The variables whose reduced gradients compute_gradients() has returned: the next apply() does not reduce them."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod.tensorflow._local import LocalVariables
from horovod.tensorflow.util import variable_name

__all__ = ["Computed"]


class Computed:
    """A flag for each variable: compute_gradients() sets it, the next apply() of that variable clears it.

    The flags are in one tf.Variable, which exists before anything is traced, so that eager code and graphs may set and
    clear each. Within one graph they are known when it is traced, and it needs no condition.
    """

    def __init__(self) -> None:
        with tf.init_scope():
            self._flags = tf.Variable(tf.zeros([0], tf.bool), shape=[None], trainable=False, name="computed")
        self._positions: dict[int, tuple[int, Any]] = {}  # with the variable, kept alive so that no other gets its id
        self._is_used = False
        self._graph: Any = None
        self._known: dict[int, bool] = {}  # of self._graph
        self._others_are_unreduced = False  # in self._graph

    def _positions_of(self, variables: Sequence[Any]) -> list[int]:
        new = [variable for variable in variables if LocalVariables.key(variable) not in self._positions]
        for variable in new:
            self._positions.setdefault(LocalVariables.key(variable), (len(self._positions), variable))
        if new:
            with tf.init_scope():
                flags = tf.zeros([len(self._positions)], tf.bool)
                self._flags.assign(tf.concat([self._flags, flags[tf.size(self._flags) :]], 0))
        return [self._positions[LocalVariables.key(variable)][0] for variable in variables]

    def _look_at_graph(self) -> None:
        """Discards the flags that are known of another graph than the one that is being traced."""
        graph = tf.compat.v1.get_default_graph()
        if self._graph is None or self._graph() is not graph:
            self._graph, self._known, self._others_are_unreduced = weakref.ref(graph), {}, False

    def _set(self, variables: Sequence[Any], value: bool) -> None:
        if not variables:
            return
        if tf.compat.v1.executing_eagerly_outside_functions():  # a TF1 session has one graph only, and _known is enough
            positions = [[position] for position in self._positions_of(variables)]
            self._flags.assign(tf.tensor_scatter_nd_update(self._flags, positions, [value] * len(positions)))
        if not tf.executing_eagerly():
            self._look_at_graph()
            self._known.update((LocalVariables.key(variable), value) for variable in variables)

    def mark(self, variables: Sequence[Any]) -> None:
        """Sets the flags: the gradients of these variables have been reduced."""
        self._is_used = True
        self._set(variables, True)

    def clear(self, variables: Sequence[Any]) -> None:
        """Clears the flags: these gradients were applied. Costs nothing in eager mode if mark() was never called."""
        if self._is_used or not tf.executing_eagerly():
            self._set(variables, False)

    def forget(self) -> None:
        """Clears all flags: the next gradients are not reduced. In a graph their apply() clears the flags."""
        if not tf.executing_eagerly():
            self._look_at_graph()
            self._known, self._others_are_unreduced = {}, True
        elif self._is_used:
            self._flags.assign(tf.zeros_like(self._flags))

    def take(self, variables: Sequence[Any]) -> bool | tuple[Any, Any]:
        """Whether the gradients of these are reduced: True, False, or two tensors: of all, of any. Clears the flags.

        ValueError if some are reduced and others are not.
        """
        flags: list[bool] | None = None
        if tf.executing_eagerly():
            positions = self._positions_of(variables) if self._is_used else []
            values = self._flags.numpy() if positions else []
            flags = [bool(values[position]) for position in positions]
        else:
            self._look_at_graph()
            keys = [LocalVariables.key(variable) for variable in variables]
            is_session = not tf.compat.v1.executing_eagerly_outside_functions()
            if self._others_are_unreduced or is_session or all(key in self._known for key in keys):
                flags = [self._known.get(key, False) for key in keys]
        if flags is None:
            own = tf.gather(self._flags, self._positions_of(variables))
            taken: bool | tuple[Any, Any] = (tf.reduce_all(own), tf.reduce_any(own))
        else:
            taken = bool(flags) and flags[0]
            if any(flags) and not all(flags):
                first = variable_name(variables[flags.index(False)])
                raise ValueError(f"{MIXED}: {first} is the first of {flags.count(False)} that are not")
        self.clear(variables)
        return taken


MIXED = (
    "apply: some of these gradients are those that compute_gradients() gave last, and others are not: "
    "apply what it gave first, or compute them all"
)
