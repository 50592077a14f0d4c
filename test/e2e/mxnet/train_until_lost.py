"""Trains for ever. Rank 1 ends in the way that is asked for; the others say what they heard, and when.

horovodrun -np 2 python train_until_lost.py kill|stall|raise wait|call
"""

from __future__ import annotations

import sys
import time

import mxnet as mx

import horovod.mxnet as hvd
from ends import END_IN_STEP, end


def main() -> None:
    hvd.init()
    net = mx.gluon.nn.Dense(1, in_units=1000)
    net.initialize()
    hvd.broadcast_parameters(net.collect_params())
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.01})
    x = mx.nd.ones((4, 1000))
    try:
        for number in range(1_000_000):
            if number == END_IN_STEP:
                end(hvd.rank())
            with mx.autograd.record():
                loss = (net(x) ** 2).sum()
            loss.backward()
            trainer.step(4)
            if sys.argv[2] == "wait":
                net.weight.data().wait_to_read()  # in the engine
            else:
                hvd.allgather(loss)  # in a call of Horovod's
    except mx.MXNetError as error:
        print("heard", time.time(), "MXNetError", str(error).splitlines()[:1], flush=True)
        raise
    except KeyboardInterrupt:
        print("heard", time.time(), "KeyboardInterrupt", flush=True)
        raise


if __name__ == "__main__":
    main()
