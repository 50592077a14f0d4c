"""Public names whose operations are not built yet, with their final signatures."""

from __future__ import annotations

from horovod.torch._session import not_built


def join(device: int = -1) -> int:
    """Says that this rank has no more data; the others may go on with allreduce. Not built yet."""
    raise not_built("join")
