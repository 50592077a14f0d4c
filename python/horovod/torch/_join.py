"""join(): the other ranks go on without one that has no more data."""

from __future__ import annotations

from horovod._common.calls import run_without_tensor
from horovod._common.native import core


def join(device: int = -1) -> int:
    """Waits until all ranks have called join(), which a rank does when it has no more data.

    Returns the global rank that called it last, the same int on all ranks. join() may be called again afterwards.

    Until then the others may go on with allreduce, Adasum and barrier on the global process set: this rank takes part
    with zeros (Min, Max and Product see them too), and Average still divides by the number of all ranks. Any other
    operation on the global set fails on every rank that takes part in it. `device`: the GPU of the zeros; they
    are made where the others' collective needs them, so that any int will do.

    ValueError: `device` is no int. HorovodInternalError: a rank is lost, or Horovod is not initialised.
    """
    if not isinstance(device, int):
        raise ValueError(f"join(device={device!r}): expected an int, -1 for the CPU, got {type(device).__name__}")
    return run_without_tensor(core.OP_JOIN, "join.noname")
