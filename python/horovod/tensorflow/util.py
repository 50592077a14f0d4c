"""Helpers of the TensorFlow module that tests and integrations import too."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, cast

import tensorflow as tf

from horovod.common.util import _cache

Function = TypeVar("Function", bound=Callable[..., Any])

__all__ = ["_cache", "_executing_eagerly", "_make_subgraph", "refs_to_vars", "vars_to_refs"]


def _executing_eagerly() -> bool:
    """Whether ops run at once: not in a graph and not while a tf.function is traced."""
    return bool(tf.executing_eagerly())


def _make_subgraph(function: Any) -> Any:
    """The function as a tf.function, so that its ops run concurrently and have names."""
    return tf.function(function, reduce_retracing=True)


def inner_variable(variable: Any) -> Any:
    """The tf.Variable inside a variable of Keras 3; anything else is returned unchanged."""
    if isinstance(variable, tf.Variable):
        return variable
    inner = getattr(variable, "_value", None)
    return inner if isinstance(inner, tf.Variable) else variable


def variable_key(variable: Any) -> int:
    """Identifies a variable, whether it is wrapped by Keras or not."""
    return id(inner_variable(variable))


def variable_name(variable: Any) -> str:
    """A name that is the same on all ranks: Keras 3's path, else the variable's own."""
    return str(getattr(variable, "path", None) or variable.name)


def normalize(name: str) -> str:
    """The name with everything but letters and digits replaced by `_`."""
    return re.sub("[^a-zA-Z0-9_]", "_", name)


def vars_to_refs(variables: Any) -> Any:
    """Returns hashable references to `variables`, a variable or a list, nested or not; tuples for lists."""
    if isinstance(variables, Sequence):
        return tuple(vars_to_refs(variable) for variable in variables)
    return inner_variable(variables).ref()


def refs_to_vars(refs: Any) -> Any:
    """Returns the variables of `refs`, which vars_to_refs() has made; lists for tuples."""
    if isinstance(refs, Sequence):
        return [refs_to_vars(ref) for ref in refs]
    return refs.deref()


def no_autograph(function: Function) -> Function:
    """Excludes the function from autograph, which would rewrite it when a tf.function calls it."""
    return cast(Function, tf.autograph.experimental.do_not_convert(function))


def _name_of(tensor: Any) -> str:
    """The name of a tensor; "tensor" for one that a function has captured, whose number differs between ranks."""
    name = str(getattr(tensor, "name", "tensor"))
    return "tensor" if name.partition(":")[0].isdigit() else name


def default_name(prefix: str, tensors: Iterable[Any]) -> str | None:
    """The name of an unnamed op in a graph, from its inputs. None in eager mode: TensorFlow takes the op's type."""
    if _executing_eagerly():
        return None
    names = [normalize(_name_of(tensor)) for tensor in tensors]
    ends = names[:1] if len(names) == 1 else [names[0], names[-1]]
    return f"{prefix}_{'_'.join(ends)}"


_REDUCED = "_hvd_reduced"


def mark_reduced(grads: Iterable[Any]) -> None:
    """Marks gradients as reduced, so that an optimizer does not reduce them again."""
    for grad in grads:
        if grad is not None:
            with contextlib.suppress(AttributeError):
                setattr(grad, _REDUCED, True)


def all_reduced(grads: Iterable[Any]) -> bool:
    """Whether a tape or compute_gradients() has reduced all of these gradients."""
    return all(getattr(grad, _REDUCED, False) for grad in grads if grad is not None)
