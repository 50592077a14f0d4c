"""What scripts of the times of Keras 2 do: gradients taken by the optimizer, sessions, factories."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.keras.optimizer_v2 import gradient_descent as optimizer_v2

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
from tf_world import KERAS_3

pytestmark = pytest.mark.two_ranks

keras = tf.keras
v1 = tf.compat.v1


def mean() -> float:
    """Of the numbers 1 to size."""
    return (1 + hvd.size()) / 2


def after_steps(optimizer: Any, change: Any, steps: int) -> list[float]:
    """The variable after each of some steps whose gradient is rank + 1; eager, but apply_gradients() in a function."""
    variable = tf.Variable([0.0])

    @tf.function
    def apply(grads: Any) -> None:
        optimizer.apply_gradients(zip(grads, [variable], strict=True))

    values = []
    for _ in range(steps):
        ((grad, _),) = optimizer.compute_gradients(lambda: variable * float(hvd.rank() + 1), [variable])
        apply([change(grad)])
        values.append(float(variable[0]))
    return values


@pytest.mark.parametrize("change", [lambda g: g, lambda g: tf.clip_by_norm(g, 100.0)], ids=["same", "clipped"])
def test_computed_gradients_are_reduced_once(change: Any) -> None:
    optimizer = hvd_keras.DistributedOptimizer(keras.optimizers.SGD(1.0), op=hvd.Sum)
    total = mean() * hvd.size()
    assert after_steps(optimizer, change, 2) == [-total, -2 * total]


def linear() -> Any:
    model = keras.Sequential(
        [keras.layers.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")]
    )
    model.compile(
        hvd_keras.DistributedOptimizer(keras.optimizers.SGD(1.0)), loss=lambda y, out: tf.reduce_mean(out * y)
    )
    return model


if KERAS_3:

    @pytest.mark.usefixtures("several_ranks")
    def test_computed_gradients_count_for_one_step() -> None:
        """The steps after that reduce: of a loop, eager and compiled, and of fit(), also without a callback."""
        model, one = linear(), np.ones((1, 1), np.float32)
        (variable,), optimizer = model.trainable_variables, model.optimizer
        own = tf.constant([[float(hvd.rank() + 1)]])
        apply = tf.function(lambda grad: optimizer.apply_gradients([(grad, variable)]))
        wanted = 0.0
        for step in (lambda grad: optimizer.apply_gradients([(grad, variable)]), apply):
            for _ in range(2):
                ((grad, _),) = optimizer.aggregate_gradients([(own, variable)])
                step(tf.clip_by_norm(grad, 100.0) * 2.0)
                wanted -= 2 * mean()
                assert float(variable.numpy()[0, 0]) == wanted, "reduced already"
                step(own)
                wanted -= mean()
                assert float(variable.numpy()[0, 0]) == wanted, "plain again"
        scaling = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=2.0)
        for outer in (optimizer, scaling):
            model.compile(outer, loss=model.loss)
            optimizer.aggregate_gradients([(own, variable)])  # to look at them
            model.fit(one, own.numpy(), verbose=0)
            wanted -= mean()
            assert float(variable.numpy()[0, 0]) == wanted

    @pytest.mark.usefixtures("several_ranks")
    @pytest.mark.parametrize("compiled", [False, True])
    def test_computed_gradients_count_for_their_variables(compiled: bool) -> None:
        """In a function that was traced before the first were computed too; sparse gradients as dense ones."""
        first, second = tf.Variable([0.0]), tf.Variable([[0.0], [0.0]])
        optimizer = hvd_keras.DistributedOptimizer(keras.optimizers.SGD(1.0), op=hvd.Sum)
        optimizer.build([first, second])
        rank, total = float(hvd.rank() + 1), mean() * hvd.size()

        def apply(*pairs: Any) -> None:
            optimizer.apply_gradients(pairs)

        step = tf.function(apply) if compiled else apply
        own = tf.constant([rank])
        rows = tf.IndexedSlices(own[:, None], tf.constant([1]), tf.constant([2, 1]))
        step((own * 1.0, first))  # traced here
        step((rows, second))
        step((own[:, None] * [[0.0], [0.0]], second))
        x = optimizer.aggregate_gradients([(own, first)])[0][0]
        y = optimizer.aggregate_gradients([(own[:, None] * [[0.0], [1.0]], second)])[0][0]
        step((x * 1.0, first))
        step((y * 1.0, second))
        assert float(first[0]) == float(second[1, 0]) == -2 * total, "reduced once"
        step((own * 1.0, first))
        step((rows, second))
        assert float(first[0]) == float(second[1, 0]) == -3 * total, "plain again"
        x = optimizer.aggregate_gradients([(own, first)])[0][0]
        with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="compute them all"):
            step((x * 1.0, first), (y * 1.0, second))

    @pytest.mark.usefixtures("several_ranks", "xla")
    def test_xla_drops_the_check_that_all_were_computed() -> None:
        """A limit that the documentation states."""
        first, second = tf.Variable([0.0]), tf.Variable([0.0])
        optimizer = hvd_keras.DistributedOptimizer(keras.optimizers.SGD(1.0), op=hvd.Sum)
        optimizer.build([first, second])
        own, total = tf.constant([float(hvd.rank() + 1)]), mean() * hvd.size()
        step = tf.function(lambda x, y: optimizer.apply_gradients([(x, first), (y, second)]), jit_compile=True)
        step(own, own)
        assert (float(first[0]), float(second[0])) == (-total, -total)
        ((computed, _),) = optimizer.aggregate_gradients([(own, first)])
        step(computed * 1.0, own * 1.0)
        assert (float(first[0]), float(second[0])) == (-total - hvd.size() * total, -2 * total)

    def test_there_is_no_session_for_keras_3() -> None:
        with tf.Graph().as_default(), v1.Session(), pytest.raises(NotImplementedError, match="eager execution"):
            hvd_keras.DistributedOptimizer(keras.optimizers.SGD(1.0))


def test_computed_gradients_are_summed_up_once() -> None:
    optimizer = hvd_keras.DistributedOptimizer(keras.optimizers.SGD(1.0), backward_passes_per_step=2)
    assert after_steps(optimizer, lambda g: g, 4) == [0.0, -2 * mean(), -2 * mean(), -4 * mean()]
    assert int(optimizer._agg_helper.counter) == 0
    assert int(optimizer.iterations) == 4


def test_fit_reduces_after_computed_gradients() -> None:
    model = linear()
    variables = model.trainable_variables
    pairs = model.optimizer.compute_gradients(lambda: tf.reduce_sum(model(np.ones((1, 1), np.float32))), variables)
    model.optimizer.apply_gradients(pairs)
    broadcast = hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0)
    target = np.full((1, 1), float(hvd.rank() + 1), np.float32)
    model.fit(np.ones((1, 1), np.float32), target, verbose=0, callbacks=[broadcast])
    assert model.get_weights()[0][0, 0] == -1 - mean()


def test_the_private_form_takes_the_gradient_of_the_loss() -> None:
    variable = tf.Variable([2.0])
    optimizer = hvd_keras.DistributedOptimizer(keras.optimizers.SGD(1.0))
    with tf.GradientTape() as tape:
        loss = variable * float(hvd.rank() + 1)
    ((grad, _),) = optimizer._compute_gradients(loss, [variable], None, tape)
    assert float(grad[0]) == mean()
    if KERAS_3:
        with tf.GradientTape() as tape:
            loss = variable * float(hvd.rank() + 1)
        ((grad, _),) = optimizer._compute_gradients(loss, [variable], grad_loss=tf.constant([3.0]), tape=tape)
        assert float(grad[0]) == 3 * mean()


@pytest.mark.parametrize("make", [lambda: keras.optimizers.SGD(0.5), lambda: optimizer_v2.SGD(0.5)], ids=["new", "v2"])
def test_names_and_variables(make: Any) -> None:
    optimizer = hvd_keras.DistributedOptimizer(make())
    assert optimizer._name == "DistributedSGD"
    assert hvd_keras.DistributedOptimizer(make(), name="mine")._name == "mine"
    assert isinstance(optimizer.variables, list)
    assert len(optimizer.variables) == len(optimizer.variables())


def test_keras_2_reduces_what_it_computes_itself() -> None:
    """Not what apply_gradients() is given, which a tape may have reduced."""
    with tf.Graph().as_default(), v1.Session() as session:
        variable = v1.get_variable("v", initializer=[0.0], use_resource=True)
        optimizer = hvd_keras.DistributedOptimizer(optimizer_v2.SGD(1.0))
        step = optimizer.apply_gradients([(tf.constant([float(hvd.rank() + 1)]), variable)])
        session.run(v1.global_variables_initializer())
        session.run(step)
        assert session.run(variable)[0] == -float(hvd.rank() + 1)


@pytest.mark.parametrize("passes", [1, 2])
def test_optimizer_v2_in_a_session(passes: int) -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        variable = v1.get_variable("v", initializer=[0.0], use_resource=True)
        optimizer = hvd_keras.DistributedOptimizer(optimizer_v2.SGD(1.0), backward_passes_per_step=passes)
        pairs = optimizer._compute_gradients(lambda: tf.reduce_sum(variable * float(hvd.rank() + 1)), [variable])
        step = optimizer.apply_gradients(pairs)
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        values = []
        for _ in range(4):
            session.run(step)
            values.append(float(session.run(variable)[0]))
        assert values == [-mean() * passes * ((i + 1) // passes) for i in range(4)]
        assert session.run(optimizer.iterations) == 4


def test_values_in_a_session() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        variable = v1.get_variable("v", initializer=[float(hvd.rank() + 1)])
        session.run(v1.global_variables_initializer())
        assert hvd_keras.allreduce([float(hvd.rank() + 1)], name="values")[0] == mean()
        hvd_keras.broadcast_global_variables(0)
        assert session.run(variable)[0] == 1.0
    with tf.Graph().as_default(), pytest.raises(ValueError, match="session") if KERAS_3 else tf.Graph().as_default():
        hvd_keras.allgather([1.0], name="no_session")
