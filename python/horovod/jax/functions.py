"""Broadcast of parameters and Python objects; allgather of objects."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from horovod._common.array_objects import allgather_object_of, broadcast_object_of
from horovod._common.calls import set_id
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.jax._session import host
from horovod.jax._work import is_traced

__all__ = ["allgather_object", "broadcast_object", "broadcast_parameters"]

jax: Any = importlib.import_module("jax")


def _is_key(leaf: Any) -> bool:
    """Whether it is a typed key of jax.random, whose bits are hidden."""
    return bool(jax.numpy.issubdtype(getattr(leaf, "dtype", np.float32), jax.dtypes.prng_key))


def broadcast_parameters(params: Any, root_rank: int = 0, process_set: ProcessSet = global_process_set) -> Any:
    """A copy of global rank `root_rank`'s `params` on every rank of the set.

    `params`: a tree of arrays, numbers and keys of jax.random, such as parameters or a state of optax, with the same
    structure, shapes and types on all ranks. Arrays of JAX come back as such, other leaves as they were:
    numpy's arrays and numbers of Python. ValueError for other leaves, and inside compiled functions; else
    `process_set` and errors as for broadcast().

    >>> params, state = hvd.broadcast_parameters((params, state))
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(params)
    named = [(f"broadcast_parameters{jax.tree_util.keystr(path)}", leaf) for path, leaf in leaves]
    for name, leaf in named:
        if is_traced(leaf):
            raise ValueError("hvd.broadcast_parameters() cannot be called inside a compiled function")
        if not isinstance(leaf, (jax.Array, np.ndarray, np.generic, bool, int, float, complex)):
            raise ValueError(f"hvd.broadcast_parameters(): {name} is a {type(leaf).__name__}, not an array or a number")
    plain = [jax.random.key_data(leaf) if _is_key(leaf) else leaf for _, leaf in named]
    arrays = [np.array(leaf, order="C") for leaf in plain]
    host.broadcast_(arrays, [name for name, _ in named], root_rank, set_id(process_set, "broadcast_parameters"))
    made = [_like(leaf, array) for (_, leaf), array in zip(named, arrays, strict=True)]
    return jax.tree_util.tree_unflatten(structure, made)


def _like(leaf: Any, array: Any) -> Any:
    """The array as what the leaf is, and where the leaf is."""
    if _is_key(leaf):
        return jax.random.wrap_key_data(array, impl=jax.random.key_impl(leaf))
    if isinstance(leaf, jax.Array):
        return jax.device_put(array, leaf.sharding if getattr(leaf, "committed", False) else None)
    if isinstance(leaf, np.generic):
        return array[()]
    return array if isinstance(leaf, np.ndarray) else array.item()


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Returns a copy of global rank `root_rank`'s object `obj`; on the root the object itself.

    `obj`: anything that pickle takes; on other ranks it is not used and may be None. `name` and `process_set`: as for
    broadcast(). HorovodInternalError: a rank is lost, the bytes are not the root's, or Horovod is not initialised.
    """
    return broadcast_object_of(host, obj, root_rank, name, set_id(process_set, "broadcast_object"))


def allgather_object(obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> list[Any]:
    """Returns the list of the objects of all ranks of the set, in rank order.

    `obj`: anything that pickle takes; size and type may differ between ranks. `name`, `process_set` and errors as for
    broadcast_object().
    """
    return allgather_object_of(host, obj, name, set_id(process_set, "allgather_object"))
