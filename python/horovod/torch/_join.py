"""join: a rank that has run out of data lets the others go on without it."""

from __future__ import annotations

from horovod._common.native import core
from horovod.torch._tensors import CPU


def join(device: int = -1) -> int:
    """Says that this rank has no more data, and blocks until all ranks have said so; gives the last of them.

    Until then the others may go on with allreduce, Adasum and barrier on the global process set: this rank takes part
    with zeros (Min, Max and Product see them too), and Average still divides by the number of all ranks. Any other
    operation of theirs on the global set fails on every rank that takes part in it. `device` is where the zeros would
    be on a GPU; there is none in this build, so any int is the same. Returns the same rank everywhere; may be used
    again afterwards.
    """
    if not isinstance(device, int):
        raise ValueError(f"join(device={device!r}): expected an int, -1 for the CPU, got {type(device).__name__}")
    handle = core.enqueue(core.OP_JOIN, "join.noname", 0, 0, (), core.DTYPE_UINT8, CPU, 0, 1.0, 1.0, 0, 0, None)
    handle.wait()
    return handle.value()
