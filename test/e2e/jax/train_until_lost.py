"""Trains for ever, compiled. Rank 1 ends in the way that is asked for; the others say what they heard, and when.

horovodrun -np 2 python train_until_lost.py kill|stall
"""

from __future__ import annotations

import time

import jax
import optax

import horovod.jax as hvd
from ends import END_IN_STEP, end


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
            if number == END_IN_STEP:
                end(hvd.rank())
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
