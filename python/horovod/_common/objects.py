"""Python objects as bytes that travel between ranks.

Unpickling executes code that the bytes name, and connections are authenticated only when they are made. So each payload
ends in a seal that only a holder of the job's secret can make, and nothing is unpickled before its seal is verified.
"""

from __future__ import annotations

import io
from typing import Any

import cloudpickle

from horovod._common.native import core
from horovod.common.exceptions import HorovodInternalError

__all__ = ["dump", "is_root", "load", "purpose"]


def is_root(root_rank: int) -> bool:
    """Whether this process is global rank `root_rank`. HorovodInternalError before init(), as operations raise it: the
    query rank() has a ValueError, which `hvd.elastic.run` would not take for the loss of a session."""
    try:
        return core.rank() == root_rank
    except ValueError as error:
        raise HorovodInternalError(str(error)) from None


def purpose(function: str, name: str | None, process_set: int | None) -> str:
    """The call that a seal is valid for: the same text on all ranks that take part in it."""
    return f"{function} in process set {process_set}, name {name!r}"


def dump(obj: Any, purpose: str) -> memoryview:
    """The pickled object, followed by its seal."""
    buffer = io.BytesIO()
    cloudpickle.dump(obj, buffer)
    with buffer.getbuffer() as payload:
        seal = core.seal_payload(purpose, payload)
    buffer.write(seal)
    return buffer.getbuffer()


def load(sealed: memoryview, sender: int, purpose: str) -> Any:
    """The object that global rank `sender` dumped for this purpose. HorovodInternalError, before unpickling, if not."""
    return cloudpickle.loads(sealed[: core.open_payload(sender, purpose, sealed)])
