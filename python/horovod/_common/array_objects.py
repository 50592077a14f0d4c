"""Python objects that ranks send each other as numpy arrays of bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from horovod._common import objects
from horovod._common.arrays import ArrayCollectives
from horovod._common.native import core

__all__ = ["allgather_object_of", "broadcast_by", "broadcast_object_of"]


def broadcast_by(send: Callable[[Any, str], Any], obj: Any, root_rank: int, purpose: str) -> Any:
    """Global rank `root_rank`'s `obj` on all ranks that call this; there the object itself.

    `send(array, part)` gives the root's array, of one shape on all ranks, which meet by the name of the part.
    """
    is_root = objects.is_root(root_rank)
    data = np.frombuffer(objects.dump(obj, purpose), np.uint8) if is_root else np.zeros(0, np.uint8)
    length = send(np.array([len(data)], np.int64), "sz")
    data = send(data if is_root else np.zeros(int(length[0]), np.uint8), "t")
    return obj if is_root else objects.load(np.ascontiguousarray(data).data, root_rank, purpose)


def broadcast_object_of(host: ArrayCollectives, obj: Any, root_rank: int, name: str | None, process_set_id: int) -> Any:
    """Global rank `root_rank`'s `obj` on all ranks of the set; there the object itself."""
    purpose = objects.purpose("broadcast_object", name, process_set_id)
    name = name or "broadcast_object"

    def send(array: Any, part: str) -> Any:
        host.broadcast_([array], [f"{name}.{part}"], root_rank, process_set_id)
        return array

    return broadcast_by(send, obj, root_rank, purpose)


def allgather_object_of(host: ArrayCollectives, obj: Any, name: str | None, process_set_id: int) -> list[Any]:
    """The objects of all ranks of the set, in rank order."""
    purpose = objects.purpose("allgather_object", name, process_set_id)
    name = name or "allgather_object"
    data = np.frombuffer(objects.dump(obj, purpose), np.uint8)
    lengths = host.allgather(np.array([len(data)], np.int64), f"{name}.sz", process_set_id)
    gathered = np.split(host.allgather(data, f"{name}.t", process_set_id), np.cumsum(lengths)[:-1])
    ranks = core.process_sets()[process_set_id]
    return [objects.load(part.data, rank, purpose) for rank, part in zip(ranks, gathered, strict=True)]
