"""What the workers of elastic jobs share: collectives of arrays, without a framework."""

from __future__ import annotations

from typing import Any

import numpy as np

from horovod._common import objects
from horovod._common.arrays import ArrayCollectives
from horovod._common.session import rank

collectives = ArrayCollectives("test")


def broadcast_object(obj: Any) -> Any:
    """Rank 0's object."""
    purpose = objects.purpose("broadcast_object", "test", 0)
    data = np.frombuffer(objects.dump(obj, purpose), np.uint8).copy() if rank() == 0 else np.zeros(0, np.uint8)
    length = np.array([len(data)], np.int64)
    collectives.broadcast_([length], ["size"], 0)
    if rank() != 0:
        data = np.zeros(int(length[0]), np.uint8)
    collectives.broadcast_([data], ["object"], 0)
    return obj if rank() == 0 else objects.load(data.data, 0, purpose)
