"""Python objects that ranks send each other as numpy arrays of bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from horovod._common import objects
from horovod._common.arrays import ArrayCollectives
from horovod._common.native import core

__all__ = ["allgather_object_of", "broadcast_object_of"]


def broadcast_object_of(host: ArrayCollectives, obj: Any, root_rank: int, name: str | None, process_set_id: int) -> Any:
    """Global rank `root_rank`'s `obj` on all ranks of the set; there the object itself."""
    purpose = objects.purpose("broadcast_object", name, process_set_id)
    is_root = objects.is_root(root_rank)
    name = name or "broadcast_object"
    data = np.frombuffer(objects.dump(obj, purpose), np.uint8).copy() if is_root else np.zeros(0, np.uint8)
    length = np.array([len(data)], np.int64)
    host.broadcast_([length], [f"{name}.sz"], root_rank, process_set_id)
    data = data if is_root else np.zeros(length[0], np.uint8)
    host.broadcast_([data], [f"{name}.t"], root_rank, process_set_id)
    return obj if is_root else objects.load(data.data, root_rank, purpose)


def allgather_object_of(host: ArrayCollectives, obj: Any, name: str | None, process_set_id: int) -> list[Any]:
    """The objects of all ranks of the set, in rank order."""
    purpose = objects.purpose("allgather_object", name, process_set_id)
    name = name or "allgather_object"
    data = np.frombuffer(objects.dump(obj, purpose), np.uint8)
    lengths = host.allgather(np.array([len(data)], np.int64), f"{name}.sz", process_set_id)
    gathered = np.split(host.allgather(data, f"{name}.t", process_set_id), np.cumsum(lengths)[:-1])
    ranks = core.process_sets()[process_set_id]
    return [objects.load(part.data, rank, purpose) for rank, part in zip(ranks, gathered, strict=True)]
