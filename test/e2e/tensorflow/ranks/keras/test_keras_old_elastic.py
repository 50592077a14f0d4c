"""Elastic training of tf.keras: callbacks, states, and passes that end with their session."""

from __future__ import annotations

import pytest
import tensorflow as tf

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
from keras_elastic import *  # noqa: F403  the tests that horovod.keras has too
from tf_world import KERAS_3

pytestmark = pytest.mark.two_ranks

keras = tf.keras


@pytest.mark.parametrize("done", [1, 2])
def test_passes_end_with_their_session(done: int) -> None:
    """One rank lost its way after `done` of two passes; afterwards all ranks reduce together again, in every second."""
    optimizer = hvd_keras.DistributedOptimizer(keras.optimizers.SGD(1.0), backward_passes_per_step=2)
    weight = tf.Variable(0.0)

    def step() -> None:
        if KERAS_3:
            optimizer.apply_gradients([(tf.constant(1.0), weight)])
        else:  # whose gradients are reduced when they are computed
            optimizer.apply_gradients(optimizer.compute_gradients(lambda: weight * 1.0, [weight]))

    for _ in range(done):
        if done == 2 and _ == 1:
            hvd.shutdown()
            with pytest.raises((ValueError, tf.errors.UnknownError), match="init"):
                step()
            assert int(optimizer._agg_helper.counter.numpy()) == 2  # nothing was reduced

        else:
            step()
    hvd.shutdown()
    hvd.init()
    weight.assign(0.0)
    seen = []
    for _ in range(4):
        step()
        seen.append(float(weight.numpy()))
    assert seen == [0.0, -2.0, -2.0, -4.0]
