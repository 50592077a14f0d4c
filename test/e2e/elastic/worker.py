"""Trains until a file is there: adds numbers up, step by step, and says what it sees.

Usage: worker.py STOP_FILE
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np
from worker_support import broadcast_object, collectives

from horovod._common.session import basics, init, local_rank, rank, size
from horovod.common.elastic import ObjectState, restart_session, run_fn
from horovod.common.process_sets import ProcessSet


def step(state: ObjectState, stop: Path) -> bool:
    """One step: every rank adds its share. Whether the end has come, the same on all ranks."""
    values = np.array([1, state.batch, -state.batch, stop.exists()], np.int64)
    totals = values[:1].copy()
    largest = values[1:].copy()
    collectives.allreduce_([totals], ["total"], basics.Sum)
    collectives.allreduce_([largest], ["largest"], basics.Max)
    if totals[0] != size() or largest[0] != state.batch or largest[1] != -state.batch:
        print("wrong", rank(), size(), state.batch, totals, largest, flush=True)
    state.total += int(totals[0]) * state.batch
    state.batch += 1
    return bool(largest[2])


def train(state: ObjectState) -> None:
    assert [os.environ["HOROVOD_RANK"], os.environ["HOROVOD_SIZE"]] == [str(rank()), str(size())]
    assert [one.process_set_id is not None for one in sets] == [size() > 1, size() > 2]  # no set that is all ranks
    ended = False
    first = True
    while not ended:
        ended = step(state, Path(sys.argv[1]))
        state.commit()
        if first:
            print(
                f"begin pid={os.getpid()} rank={rank()} size={size()} local_rank={local_rank()} batch={state.batch}",
                f"when={time.time():.4f}",
                flush=True,
            )
        first = False
        time.sleep(0.01)


print(f"up pid={os.getpid()}", flush=True)  # a spare waits after that
sets = [ProcessSet([0]), ProcessSet([0, 1])]
init(process_sets=sets)
the_state = ObjectState(broadcast_object, rank, batch=0, total=0)
run_fn(train, restart_session)(the_state)
print(f"end rank={rank()} batch={the_state.batch} total={the_state.total}", flush=True)
