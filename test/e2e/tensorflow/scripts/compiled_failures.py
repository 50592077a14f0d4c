"""One of several ranks of a job that must end: argv[1] says how. Prints what it heard."""

from __future__ import annotations

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

import horovod.tensorflow as hvd


def another_rank_raises() -> None:
    function = tf.function(lambda x: hvd.allreduce(x, name="t"), jit_compile=True)
    function(tf.ones([3]))
    if hvd.rank() == 1:
        raise ValueError("rank 1 has enough")
    function(tf.ones([3]))


def in_another_order() -> None:
    names = ["first", "second"] if hvd.rank() == 0 else ["second", "first"]
    tf.function(lambda x: [hvd.allreduce(x, name=name) for name in names], jit_compile=True)(tf.ones([3]))


hvd.init()
try:
    {"raise": another_rank_raises, "order": in_another_order}[sys.argv[1]]()
except tf.errors.OpError as error:
    print("heard", type(error).__name__, error.message.replace("\n", " "), flush=True)
    raise
print("no error", flush=True)
