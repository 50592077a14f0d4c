"""Gradients of collectives in functions that XLA compiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd
from tf_world import agree, array, compiled, mine, same

pytestmark = pytest.mark.usefixtures("xla")


def test_gradients_are_those_of_the_ops() -> None:
    def everything(x: Any) -> Any:
        return [
            hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5) * 2.0,
            tf.add_n(hvd.grouped_allreduce([x, x * 2.0])),
            hvd.allgather(x) * 3.0,
            tf.add_n(hvd.grouped_allgather([x, x * 2.0])),
            hvd.broadcast(x, 0) * 4.0,
            hvd.alltoall(x) * 5.0,
            hvd.reducescatter(x[:5], op=hvd.Sum) * 6.0,
            tf.add_n(hvd.grouped_reducescatter([x[:5], x[:5] * 2.0])),
        ]

    def run(x: Any) -> Any:
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            results = everything(x)
        return [tape.gradient(result, x) for result in results]

    agree(run, mine((6, 2), tf.float32))


def test_gradients_through_a_loop_and_a_branch() -> None:
    def run(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            step = lambda i, y: (i + 1, hvd.allreduce(y, op=hvd.Sum, name="loop") * 0.5)  # noqa: E731
            _, y = tf.while_loop(lambda i, _: i < 3, step, (0, x), maximum_iterations=3)
            two = lambda: hvd.allreduce(y, name="one") + hvd.allreduce(x * 7.0, name="two")  # noqa: E731
            y = tf.cond(tf.reduce_sum(x) > 0, two, lambda: x)
            loss = tf.reduce_sum(y * hvd.allreduce(x * 3.0, name="last"))
        return tape.gradient(loss, x)

    for _ in range(5):
        agree(run, tf.ones([4]))


def test_an_eager_tape_around_a_compiled_function() -> None:
    """Its gradient is a function of its own, whose calls do not wait for each other either."""

    def run(x: Any) -> Any:
        return tf.add_n([tf.reduce_sum(hvd.allreduce(x * i, op=hvd.Sum, name=f"t{i}")) for i in range(1, 9)])

    x = tf.ones([3])
    function = compiled(run)
    for _ in range(30):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = function(x)
        same(tape.gradient(loss, x), np.full([3], 36.0 * hvd.size(), np.float32))


def test_gradients_that_nothing_would_order_are_refused() -> None:
    x = tf.ones([3])
    with tf.GradientTape() as tape:
        tape.watch(x)
        with pytest.raises(RuntimeError, match=r"move the tape into it.*jit_compile=False"):
            compiled(lambda x: tf.cond(x[0] > 0, lambda: hvd.allreduce(x), lambda: x))(x)


def test_a_compiled_function_inside_one_that_is_not() -> None:
    first = compiled(lambda x: hvd.allreduce(x, op=hvd.Sum, name="first"))
    second = compiled(lambda x: hvd.allreduce(x * 2.0, op=hvd.Sum, name="second"))
    function = tf.function(lambda x: (first(x), second(x), hvd.allreduce(x, op=hvd.Sum, name="third")))
    for _ in range(30):
        assert [float(array(one)[0]) for one in function(tf.ones([2]))] == [k * hvd.size() for k in (1, 2, 1)]
