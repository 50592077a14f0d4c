"""Trains for ever. Rank 1 ends in the way that is asked for; the others say what they heard, and when.

horovodrun -np 2 python train_until_lost.py kill|stall|raise wait|call
"""

from __future__ import annotations

import sys

import mxnet as mx

import horovod.mxnet as hvd
from ends import hearing, steps


def main() -> None:
    hvd.init()
    net = mx.gluon.nn.Dense(1, in_units=1000)
    net.initialize()
    hvd.broadcast_parameters(net.collect_params())
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.01})
    x = mx.nd.ones((4, 1000))
    with hearing():
        for _ in steps(hvd.rank()):
            with mx.autograd.record():
                loss = (net(x) ** 2).sum()
            loss.backward()
            trainer.step(4)
            if sys.argv[2] == "wait":
                net.weight.data().wait_to_read()  # in the engine
            else:
                hvd.allgather(loss)  # in a call of Horovod's


if __name__ == "__main__":
    main()
