"""Graphs that are built and run before init(), between init() and shutdown(), and after: in one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

import horovod.tensorflow as hvd


def said(run: Callable[[], Any], error: type[Exception]) -> str:
    try:
        result = run()
    except error as caught:
        return str(caught)
    raise AssertionError(f"expected {error.__name__}, got {result}")


graph = tf.Graph()
with graph.as_default():
    reduced = hvd.allreduce(tf.ones([3]), op=hvd.Sum)
    gathered = hvd.allgather(tf.ones([3]))
    where = [hvd.size_op(), hvd.rank_op(), hvd.local_size_op(), hvd.local_rank_op(), hvd.process_set_included_op()]
session = tf.compat.v1.Session(graph=graph)


@tf.function
def function() -> Any:
    return hvd.allreduce(tf.ones([3]), op=hvd.Sum)


traced = function.get_concrete_function()
optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)

# Before init(): every way says what to do.
for run in (lambda: hvd.allreduce(tf.ones([3])), traced, lambda: session.run(reduced), lambda: session.run(gathered)):
    assert "hvd.init()" in said(run, tf.errors.FailedPreconditionError)
for one in where[:4]:
    assert "hvd.init()" in said(lambda one=one: session.run(one), tf.errors.FailedPreconditionError)
assert session.run(where[4]) < 0
for ask in (hvd.size, hvd.rank, hvd.local_rank):
    assert "hvd.init()" in said(ask, ValueError)
print("before init", flush=True)

# What was built before runs now, and answers for the session that there is.
hvd.init()
size = hvd.size()
for _ in range(2):
    assert session.run(reduced).tolist() == [size] * 3
    assert session.run(gathered).tolist() == [1.0] * 3 * size
    assert session.run(where) == [size, hvd.rank(), hvd.local_size(), hvd.local_rank(), 1]
    assert traced().numpy().tolist() == [size] * 3
    assert function().numpy().tolist() == [size] * 3
print("while initialised", flush=True)

hvd.shutdown()
for run in (lambda: hvd.allreduce(tf.ones([3])), traced, lambda: session.run(reduced), lambda: session.run(where[0])):
    text = said(run, tf.errors.OpError)
    assert "shut down" in text or "initialized" in text, text
    assert "hvd.init()" in text, text
print("after shutdown", flush=True)

hvd.init()
assert session.run(reduced).tolist() == [size] * 3
assert traced().numpy().tolist() == [size] * 3
hvd.shutdown()
print("again", flush=True)
