"""Trains for ever, compiled. Rank 1 ends in the way that is asked for; the others say what they heard, and when.

horovodrun -np 2 python train_until_lost.py kill|stall
"""

from __future__ import annotations

import os
import signal
import sys
import time

import jax
import optax

import horovod.jax as hvd
from when_waiting import when_waiting

END_IN_STEP = 20


def end_now(number: int) -> None:
    print("ends", time.time(), flush=True)
    os.kill(os.getpid(), number)


def end(step: int) -> None:
    if step != END_IN_STEP:
        return
    if sys.argv[1] == "stall":
        if hvd.rank() == 1:
            time.sleep(60)
        else:
            when_waiting(lambda: end_now(signal.SIGINT))
    elif hvd.rank() == 1:
        end_now(signal.SIGKILL)


def main() -> None:
    hvd.init()
    optimizer = hvd.DistributedOptimizer(optax.sgd(0.1))
    params = jax.numpy.ones(1000)
    state = optimizer.init(params)

    @jax.jit
    def step(params: jax.Array, state: optax.OptState) -> tuple[jax.Array, optax.OptState]:
        updates, state = optimizer.update(jax.grad(lambda x: (x**2).sum())(params), state)
        return optax.apply_updates(params, updates), state

    try:
        for number in range(1_000_000):
            end(number)
            params, state = step(params, state)
            jax.block_until_ready(params)
    except jax.errors.JaxRuntimeError as error:
        print("raised", type(error).__name__, flush=True)
        try:
            hvd.raise_failure()
        except BaseException as cause:
            print("heard", time.time(), type(cause).__name__, str(cause).splitlines()[:1], flush=True)
            raise
    except KeyboardInterrupt:
        print("heard", time.time(), "KeyboardInterrupt", flush=True)
        raise


if __name__ == "__main__":
    main()
