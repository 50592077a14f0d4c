"""Each class of error arrives as TensorFlow's exception for it, and the session goes on where it can."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import tensorflow as tf

import horovod.tensorflow as hvd
from horovod import _core
from tf_world import MODES, assert_usable, in_graph

pytestmark = pytest.mark.usefixtures("several_ranks")


def test_another_shape_is_a_failed_precondition_on_all_ranks() -> None:
    given = tf.ones([3 + hvd.rank()])
    for run in (lambda: hvd.allreduce(given), tf.function(lambda: hvd.allreduce(given))):
        with pytest.raises(tf.errors.FailedPreconditionError, match="shape"):
            run()
    with pytest.raises(tf.errors.FailedPreconditionError, match="shape"):
        in_graph(lambda: hvd.allreduce(tf.ones([3 + hvd.rank()])))
    assert_usable()


def test_another_type_root_or_operation() -> None:
    rank = hvd.rank()
    with pytest.raises(tf.errors.FailedPreconditionError, match="type"):
        hvd.allreduce(tf.ones([3], tf.float32 if rank == 0 else tf.float64))
    with pytest.raises(tf.errors.FailedPreconditionError, match="root"):
        hvd.broadcast(tf.ones([3]), rank)
    with pytest.raises(tf.errors.FailedPreconditionError):
        hvd.allreduce(tf.ones([3]), op=hvd.Sum if rank == 0 else hvd.Max)
    assert_usable()


def test_mistakes_of_one_rank_are_invalid_arguments() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="root"):
        hvd.broadcast(tf.ones([3]), hvd.size() + 5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="split"):
        hvd.alltoall(tf.ones([3]), splits=[1] * (hvd.size() + 1))
    with pytest.raises(tf.errors.InvalidArgumentError, match="split"):
        hvd.alltoall(tf.ones([3]), splits=[[1] * hvd.size()])
    with pytest.raises(tf.errors.InvalidArgumentError):
        hvd.size_op(99)
    assert_usable()


@pytest.mark.parametrize("mode", MODES)
def test_each_class_of_error_in_each_mode(mode: Any) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="root"):
        mode(lambda: hvd.broadcast(tf.ones([3]), hvd.size() + 5))
    with pytest.raises(tf.errors.FailedPreconditionError, match=r"rank 0 gave.*rank 1 gave"):
        mode(lambda: hvd.allreduce(tf.ones([3 + hvd.rank()])))
    assert_usable()
    hvd.shutdown()
    with pytest.raises(tf.errors.UnknownError, match=r"hvd\.init\(\)"):
        mode(lambda: hvd.allreduce(tf.ones([3])))


@pytest.mark.parametrize("mode", MODES)
def test_a_rank_that_was_mistaken_tries_again(mode: Any) -> None:
    """The others wait for it meanwhile."""
    if hvd.rank() == 0:
        with pytest.raises(tf.errors.InvalidArgumentError, match="split"):
            mode(lambda: hvd.alltoall(tf.range(4), splits=[3] * hvd.size()))
    rows = mode(lambda: hvd.alltoall(tf.ones([hvd.size()]), splits=[1] * hvd.size()))[0]
    assert rows.tolist() == [1.0] * hvd.size()


def test_a_name_that_is_pending_is_an_invalid_argument() -> None:
    """Two nodes of one leaf name, with the scope ignored. The others submit theirs when the second has been refused."""

    def under(scope: str) -> Any:
        def run() -> Any:
            with tf.name_scope(scope):
                return hvd.allreduce(tf.ones([2]), name="same", ignore_name_scope=True, op=hvd.Sum)

        return tf.function(run)

    with ThreadPoolExecutor(1) as thread:
        first = thread.submit(under("a")) if hvd.rank() == 0 else None
        if first is not None:
            deadline = time.monotonic() + 30
            while not _core.pending_operations():
                assert time.monotonic() < deadline, "the first is not submitted"
                time.sleep(0.01)
            with pytest.raises(tf.errors.InvalidArgumentError, match="pending"):
                under("b")()
        hvd.allreduce(tf.ones([1]), name="refused")
        result = under("a")() if first is None else first.result(30)
    assert result.numpy().tolist() == [hvd.size()] * 2


def test_reducescatter_checks() -> None:
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError, tf.errors.FailedPreconditionError)):
        hvd.reducescatter(tf.constant(1.0))
    with pytest.raises(tf.errors.AbortedError, match="Max"):
        hvd.reducescatter(tf.ones([4]), op=hvd.Max)
    assert_usable()


def test_python_refuses_what_is_not_supported() -> None:
    slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]), dense_shape=tf.constant([4, 2]))
    for bad in ({"op": hvd.Adasum}, {"op": hvd.Max}, {"prescale_factor": 2.0}):
        with pytest.raises(NotImplementedError):
            hvd.allreduce(slices, **bad)
    with pytest.raises(ValueError, match="average"):
        hvd.allreduce(tf.ones([1]), average=True, op=hvd.Sum)
    with pytest.raises(ValueError, match="registered"):
        hvd.allreduce(tf.ones([1]), process_set=hvd.ProcessSet([0]))


def test_before_init_and_after_shutdown() -> None:
    hvd.shutdown()
    with pytest.raises(tf.errors.UnknownError, match="init"):
        hvd.allreduce(tf.ones([1]))
    with pytest.raises(ValueError, match="initialized"):
        hvd.rank()
