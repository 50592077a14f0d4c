"""Collectives of arrays that have values: by the host, through numpy."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from horovod._common.native import core
from horovod.jax._session import host
from horovod.jax._work import KEEPS_SHAPE, Work

__all__ = ["on_host"]

jax: Any = importlib.import_module("jax")  # Any: its types differ between versions


def on_host(work: Work, arrays: Sequence[Any]) -> tuple[list[Any], list[list[int]]]:
    """The results, and for each array of an allgather how many rows each member gave.

    Requires: `work` has all names. HorovodInternalError: ranks disagree, a rank is lost, or Horovod is not initialised.
    """
    if work.kind in KEEPS_SHAPE:
        own = [np.array(array, order="C") for array in arrays]  # JAX's do not change
        _keep_shape(work, own)
        return [_like(array, made) for array, made in zip(arrays, own, strict=True)], []
    given = [np.asarray(array) for array in arrays]
    made, rows = _move_rows(work, given)
    return [_like(array, one) for array, one in zip(arrays, made, strict=True)], rows


def _keep_shape(work: Work, own: list[Any]) -> None:
    """Overwrites the arrays with what all ranks have made of them."""
    names, reduction = work.names, work.reduction
    if work.kind == core.OP_BROADCAST:
        host.broadcast_(own, names, work.root_rank, work.set_id)
    elif work.groups:
        rest = iter(own)
        groups = {str(name): [next(rest) for _ in range(n)] for name, n in zip(names, work.groups, strict=True)}
        host.grouped_allreduce_(groups, *reduction)
    else:
        host.allreduce_(own, names, *reduction)


def _move_rows(work: Work, given: list[Any]) -> tuple[list[Any], list[list[int]]]:
    """Operations whose results have other rows than their arrays: of one array, or of one group."""
    (name,) = work.names
    if work.kind == core.OP_ALLGATHER:
        if work.groups:
            gathered = host.grouped_allgather_with_rows(given, str(name), work.set_id)
        else:
            gathered = [host.allgather_with_rows(given[0], name, work.set_id)]
        return [array for array, _ in gathered], [rows for _, rows in gathered]
    if work.kind == core.OP_ALLTOALL:
        return [host.alltoall(given[0], (), name, work.set_id)[0]], []
    if work.groups:
        shares = host.grouped_reducescatter(given, str(name), work.op, work.prescale, work.postscale, work.set_id)
    else:
        shares = [host.reducescatter(given[0], name, work.op, work.set_id, work.prescale, work.postscale)]
    return [_as_numpy(share, array) for share, array in zip(shares, given, strict=True)], []


def _as_numpy(share: Any, given: Any) -> Any:
    if given.dtype.name == "bfloat16":  # numpy's lacks it
        return np.asarray(jax.dlpack.from_dlpack(share))
    return np.from_dlpack(share)


def _like(array: Any, made: Any) -> Any:
    """The result as an array of JAX, on the device that a program has chosen for the argument."""
    if getattr(array, "committed", False) and len(array.devices()) == 1:
        return jax.device_put(made, array.sharding)
    return jax.numpy.asarray(made)
