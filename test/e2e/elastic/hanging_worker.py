"""Trains 20 steps; in the fifth, rank 1 hangs, once. Usage: hanging_worker.py MARKER_FILE"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from worker_support import broadcast_object

from horovod._common.session import init, rank, size
from horovod.common.elastic import ObjectState, restart_session, run_fn


def train(state: ObjectState) -> None:
    print(f"begin pid={os.getpid()} rank={rank()} size={size()} local_rank=0 batch={state.batch} when=0", flush=True)
    while state.batch < 20:
        state.batch += 1
        if state.batch == 5 and rank() == 1 and not Path(sys.argv[1]).exists():
            Path(sys.argv[1]).touch()
            time.sleep(1000)
        state.commit()


init()
run_fn(train, restart_session)(ObjectState(broadcast_object, rank, batch=0))
