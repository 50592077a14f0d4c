"""join: a rank that has run out of data lets the others go on without it."""

from __future__ import annotations

from horovod._common.calls import run_without_tensor
from horovod._common.native import core


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
    return run_without_tensor(core.OP_JOIN, "join.noname")
