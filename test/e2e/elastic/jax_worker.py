"""Trains in compiled steps. The process that begins as rank 1 kills itself in the middle, the first time.

jax_worker.py MARK: a file that is there once it has.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import horovod.jax as hvd

STEPS = 20
KILL_IN = 10
COMMIT_EVERY = 3


@jax.jit
def step(params: Any) -> Any:
    return params + hvd.allreduce(jnp.ones(3), op=hvd.Sum) / hvd.size()  # under an automatic name


@hvd.elastic.run
def train(state: Any) -> None:
    if state.step == 0:
        hvd.allreduce(1.0)  # takes an automatic name that a process has not taken which comes later
    print(f"rank {hvd.rank()} of {hvd.size()} begins at step {state.step}", flush=True)
    while state.step < STEPS:
        if state.step == KILL_IN and hvd.rank() == 1 and not MARK.exists():
            MARK.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        state.params = step(state.params)
        state.step += 1
        if state.step % COMMIT_EVERY == 0:
            state.commit()


MARK = Path(sys.argv[1])
hvd.init()
kept = hvd.elastic.JaxState(params=jnp.zeros(3), step=0)
train(kept)
print(f"rank {hvd.rank()} ends with {kept.params.tolist()} after step {kept.step}", flush=True)
