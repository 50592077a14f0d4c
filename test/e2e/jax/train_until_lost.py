"""Trains for ever, compiled. Rank 1 ends in the way that is asked for; the others say what they heard, and when.

horovodrun -np 2 python train_until_lost.py kill|stall
"""

from __future__ import annotations

import jax
import optax

import horovod.jax as hvd
from ends import hearing, steps


def main() -> None:
    hvd.init()
    optimizer = hvd.DistributedOptimizer(optax.sgd(0.1))
    params = jax.numpy.ones(1000)
    state = optimizer.init(params)

    @jax.jit
    def step(params: jax.Array, state: optax.OptState) -> tuple[jax.Array, optax.OptState]:
        updates, state = optimizer.update(jax.grad(lambda x: (x**2).sum())(params), state)
        return optax.apply_updates(params, updates), state

    with hearing():
        try:
            for _ in steps(hvd.rank()):
                params, state = step(params, state)
                jax.block_until_ready(params)
        except jax.errors.JaxRuntimeError as error:
            print("raised", type(error).__name__, flush=True)
            hvd.raise_failure()


if __name__ == "__main__":
    main()
