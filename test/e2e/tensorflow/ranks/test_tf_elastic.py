"""Scripts written for elastic training, on ranks that stay: variables that return to the last commit, and the loop."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd
from horovod import _core
from horovod.common.exceptions import HorovodInternalError
from horovod.tensorflow.elastic import TensorFlowKerasState, TensorFlowState


def train(mode: str, leave_at: int, fails: bool = False) -> tuple[float, list[int]]:
    """Eight steps, a commit after every third; the last rank leaves or fails in one. The weight, and where each run began."""
    weight = tf.Variable(float(hvd.rank()))

    def step(batch: Any) -> Any:
        return hvd.allreduce(tf.cast(batch, tf.float32) * weight + 1.0, op=hvd.Average, name="step")

    steps = {"eager": step, "function": tf.function(step), "xla": tf.function(step, jit_compile=True)}
    began: list[int] = []

    @hvd.elastic.run
    def run(state: Any) -> float:
        began.append(state.batch)
        for batch in range(state.batch, 8):
            if batch == leave_at and len(began) == 1 and hvd.rank() == hvd.size() - 1:
                if fails:  # the others' error says who is lost, and nothing of Horovod
                    _core.announce_failure("a fault")
                hvd.shutdown()
                raise HorovodInternalError("this rank has lost its way")
            weight.assign(steps[mode](tf.constant(batch)))
            state.batch = batch + 1
            if state.batch % 3 == 0:
                state.commit()
        return float(weight.numpy())

    return run(TensorFlowState([weight], batch=0)), began


def goes_on_from_the_last_commit(mode: str) -> None:
    without, began = train(mode, leave_at=-1)
    assert began == [0]
    after, began = train(mode, leave_at=5)
    assert began == [0, 3]
    assert after == without


@pytest.mark.parametrize("mode", ["eager", "function"])
def test_training_goes_on_from_the_last_commit(mode: str) -> None:
    goes_on_from_the_last_commit(mode)


@pytest.mark.parametrize("mode", ["eager", "function"])
def test_training_goes_on_when_a_rank_has_failed(mode: str) -> None:
    after, began = train(mode, leave_at=5, fails=True)
    assert began == [0, 3]
    assert after == train(mode, leave_at=-1)[0]


@pytest.mark.usefixtures("xla")
def test_compiled_training_goes_on_from_the_last_commit() -> None:
    goes_on_from_the_last_commit("xla")


def test_another_failure_of_tensorflow_is_not_ours() -> None:
    @hvd.elastic.run
    def run(state: Any) -> None:
        raise tf.errors.UnknownError(None, None, "the disk is on fire")

    with pytest.raises(tf.errors.UnknownError, match="on fire"):
        run(TensorFlowState([tf.Variable(1.0)]))


def test_a_state_in_a_graph() -> None:
    with tf.Graph().as_default():
        first = tf.compat.v1.get_variable("first", initializer=float(hvd.rank()))
        second = tf.compat.v1.get_variable("second", initializer=[1.0, 2.0])
        with tf.compat.v1.Session() as session:
            state = TensorFlowState(session=session, epoch=hvd.rank())
            assert state.variables == [first, second]
            state.restore()  # nothing was saved: there were no values
            session.run(tf.compat.v1.global_variables_initializer())
            tf.compat.v1.get_default_graph().finalize()
            state.sync()
            assert state.epoch == 0
            assert session.run(first) == 0.0
            first.load(5.0, session)
            second.load([7.0, 7.0], session)
            state.restore()
            assert session.run(first) == 0.0
            np.testing.assert_array_equal(session.run(second), [1.0, 2.0])
            first.load(6.0, session)
            state.commit()
            first.load(5.0, session)
            state.restore()
            assert session.run(first) == 6.0


@pytest.mark.parametrize("backend", [None, tf.keras.backend, tf.compat.v1.keras.backend])
def test_a_keras_state_in_a_graph(backend: Any) -> None:
    """The module tf.keras.backend has no session to offer; that of tf.compat.v1 has, in Keras 2."""
    with tf.Graph().as_default():
        weight = tf.compat.v1.get_variable("weight", initializer=float(hvd.rank()))
        model = SimpleNamespace(built=True, name="model", variables=[weight])
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            state = TensorFlowKerasState(model, backend=backend, epoch=hvd.rank())
            state.sync()
            assert (session.run(weight), state.epoch) == (0.0, 0)
            weight.load(5.0, session)
            state.restore()
            assert session.run(weight) == 0.0
