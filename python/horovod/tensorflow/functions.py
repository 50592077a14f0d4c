"""Broadcast of variables, in every mode, and of Python objects; allgather of objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from horovod._common import objects
from horovod._common.array_objects import broadcast_by
from horovod._common.native import core
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow._dense import allgather, broadcast
from horovod.tensorflow._session import set_id
from horovod.tensorflow.util import _executing_eagerly, inner_variable, no_autograph, normalize, variable_name

__all__ = [
    "BroadcastGlobalVariablesHook",
    "allgather_object",
    "broadcast_",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
]


def _is_resource(variable: Any) -> bool:
    return getattr(variable, "dtype", None) is not None and not getattr(variable.dtype, "_is_ref_dtype", False)


def _check_in_place(variables: Sequence[Any]) -> None:
    kinds = {_is_resource(variable) for variable in variables}
    if len(kinds) > 1:
        raise ValueError("broadcast_: the variables must be all resource variables or all reference variables")


def _assign(variable: Any, value: Any) -> Any:
    """Assigns the value; returns the op or tensor that is evaluated after the assignment."""
    if not _executing_eagerly():
        return tf.compat.v1.assign(variable, value)
    return variable.assign(value)


def _broadcast_each(
    variables: Sequence[Any], names: Sequence[str], root_rank: int, process_set: ProcessSet
) -> list[Any]:
    assigned = []
    for variable, name in zip(variables, names, strict=True):
        inner = inner_variable(variable)
        value = broadcast(inner.read_value(), root_rank, name=name, process_set=process_set)
        assigned.append(_assign(inner, value))
    return assigned


@no_autograph
def broadcast_(
    variables: Sequence[Any],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Overwrites `variables`, a list, with those of global rank `root_rank`. Returns the list of their new values.

    They are matched between ranks by name, which begins with `name` if given. `process_set`: the ranks that take part.
    ValueError for reference and resource variables in one list; else errors as for broadcast().
    """
    variables = list(variables)
    if not variables:
        return []
    _check_in_place([inner_variable(variable) for variable in variables])

    def run() -> list[Any]:
        prefix = name or "HorovodBroadcastInplace"
        names = [f"{prefix}_{normalize(variable_name(variable))}" for variable in variables]
        assigned = _broadcast_each(variables, names, root_rank, process_set)
        with tf.control_dependencies([one for one in assigned if one is not None]):
            return [tf.identity(inner_variable(variable).read_value()) for variable in variables]

    if not _executing_eagerly():
        return run()
    # Eagerly, ops would run one after another, in an order that others may not have. No call of a tf.function:
    # TensorFlow counts their tracings, and warns of those of calls that have nothing to do with each other.
    return list(tf.function(run).get_concrete_function()())


@no_autograph
def broadcast_variables(
    variables: Sequence[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> Any:
    """Overwrites `variables`, a list, with those of global rank `root_rank`, and waits. In a graph: returns the op.

    They are matched between ranks by position. `process_set`: the ranks that take part. `inplace` is accepted for
    compatibility: variables are always overwritten in place. Errors as for broadcast().
    """
    del inplace
    variables = list(variables)

    # By position: what variables are called depends on how many models a rank has built before.
    names = [f"HorovodBroadcast_{position}" for position in range(len(variables))]

    def run() -> None:
        _broadcast_each(variables, names, root_rank, process_set)

    if not _executing_eagerly():
        return tf.group(*_broadcast_each(variables, names, root_rank, process_set))
    # Eagerly ops have no names, and would be matched by when they come; else as in broadcast_().
    if variables:
        tf.function(run).get_concrete_function()()
    return None


def broadcast_global_variables(root_rank: int) -> Any:
    """Returns the op that overwrites all global variables of the graph with those of global rank `root_rank`.

    RuntimeError in eager mode. Errors of the op as for broadcast().
    """
    if _executing_eagerly():
        raise RuntimeError(
            "hvd.broadcast_global_variables() does not support eager execution. "
            "Please use `hvd.broadcast_variables(<model/optimizer variables>)` instead."
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """A session hook of TF1: overwrites all global variables with those of `root_rank` after a session was created.

    `device`: the tf.device of the broadcasts. Errors as for broadcast().
    """

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self.bcast_op: Any = None

    def begin(self) -> None:
        if self.bcast_op is None or self.bcast_op.graph is not tf.compat.v1.get_default_graph():
            with tf.device(self.device):
                self.bcast_op = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        del coord
        session.run(self.bcast_op)


# Objects are sent as bytes, after their number.


def session_if_any(session: Any = None) -> Any:
    """The session to run ops in: the given one, the default one, or that of Keras 2. None if there is none."""
    found = session or tf.compat.v1.get_default_session()
    if found is not None:
        return found
    try:
        return tf.compat.v1.keras.backend.get_session()
    except (AttributeError, ImportError):
        return None


def session_or_default(session: Any, caller: str) -> Any:
    """As session_if_any(). ValueError if there is none."""
    found = session_if_any(session)
    if found is None:
        raise ValueError(f"{caller}: there is no default session in this graph; use it inside `with session:`")
    return found


def _evaluate(tensor: Any, session: Any, caller: str) -> Any:
    """The value of a tensor as an array, in every mode. RuntimeError while a tf.function is traced."""
    if tf.executing_eagerly():
        return tensor.numpy()
    if tf.inside_function():
        raise RuntimeError(f"{caller} needs values, not symbols: call it outside of tf.function")
    return session_or_default(session, caller).run(tensor)


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns a copy of global rank `root_rank`'s object `obj`; on the root the object itself.

    `obj`: anything that pickle takes; on other ranks it is not used and may be None. In a graph `session` runs the ops;
    without one the default session, or Keras 2's. `name` and `process_set`: as for broadcast(). RuntimeError while a
    tf.function is traced; HorovodInternalError if the bytes are not the root's; else errors as for broadcast().
    """
    caller = "broadcast_object"
    name = name or caller  # not the type's: ranks without the object may pass None

    def send(array: Any, part: str) -> Any:
        return _evaluate(broadcast(array, root_rank, f"{name}.{part}", process_set=process_set), session, caller)

    return broadcast_by(send, obj, root_rank, objects.purpose(caller, name, process_set.process_set_id))


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[Any], Any]:
    """Returns a function obj -> obj that broadcasts objects from `root_rank` repeatedly with the ops of one TF1 graph.

    Arguments and errors as for broadcast_object(); RuntimeError in eager mode.
    """
    if _executing_eagerly():
        raise RuntimeError("broadcast_object_fn works in TF1 graphs; use broadcast_object() in eager mode")
    name = name or "broadcast_object_fn"
    own = {
        "sz": tf.compat.v1.placeholder(tf.int64, shape=[1], name=f"{name}_size"),
        "t": tf.compat.v1.placeholder(tf.uint8, shape=[None], name=f"{name}_bytes"),
    }
    of_root = {part: broadcast(own[part], root_rank, f"{name}.{part}", process_set=process_set) for part in own}

    def run(obj: Any) -> Any:
        active = session_or_default(session, "broadcast_object_fn")
        purpose = objects.purpose("broadcast_object_fn", name, process_set.process_set_id)
        return broadcast_by(
            lambda array, part: active.run(of_root[part], feed_dict={own[part]: array}), obj, root_rank, purpose
        )

    return run


def allgather_object(
    obj: Any, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Returns the list of the objects of all ranks of the set, in rank order.

    `obj`: anything that pickle takes; size and type may differ between ranks. `session`, `name`, `process_set` and
    errors as for broadcast_object().
    """
    caller = "allgather_object"
    name = name or caller
    purpose = objects.purpose(caller, name, process_set.process_set_id)
    data = np.frombuffer(objects.dump(obj, purpose), dtype=np.uint8)
    length = np.array([len(data)], dtype=np.int64)
    lengths = _evaluate(allgather(length, name=f"{name}.sz", process_set=process_set), session, caller)
    gathered = _evaluate(allgather(data, name=f"{name}.t", process_set=process_set), session, caller)
    ends = np.cumsum(lengths)
    senders = core.process_sets()[set_id(process_set, caller)]
    return [
        objects.load(np.ascontiguousarray(gathered[end - count : end]).data, sender, purpose)
        for sender, end, count in zip(senders, ends, lengths, strict=True)
    ]
