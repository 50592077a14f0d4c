"""What tests of process sets share: sessions that begin again with other sets, and the sets of even and odd ranks."""

from __future__ import annotations

from collections.abc import Sequence

import horovod.torch as hvd

DYNAMIC = "HOROVOD_DYNAMIC_PROCESS_SETS"


def start_again(process_sets: Sequence[hvd.ProcessSet] | str | None = None) -> None:
    hvd.barrier()
    hvd.shutdown()
    hvd.init(process_sets=process_sets)


def evens_and_odds() -> tuple[hvd.ProcessSet, hvd.ProcessSet]:
    """Two unregistered sets; of one rank each where there are two."""
    return hvd.ProcessSet(range(0, hvd.size(), 2)), hvd.ProcessSet(range(1, hvd.size(), 2))
