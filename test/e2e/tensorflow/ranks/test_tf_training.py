"""Tapes, optimizers and callbacks: every rank ends with the same variables, those of one process with all data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod.keras as hvd_keras
import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_tfk
from tf_world import KERAS_3

ROWS = 8


def data(rank: int) -> tuple[Any, Any]:
    x = np.random.default_rng(rank).normal(size=(ROWS, 4)).astype(np.float32)
    return x, (x[:, :1] - x[:, 1:2]).astype(np.float32)


def all_data() -> tuple[Any, Any]:
    parts = [data(rank) for rank in range(hvd.size())]
    return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])


def assert_all_ranks_hold(arrays: list[Any]) -> None:
    for array in arrays:
        everybodys = hvd.allgather(tf.constant(np.asarray(array)[None])).numpy()
        assert all((other == array).all() for other in everybodys)


def net(seed: int = 3) -> Any:
    tf.keras.utils.set_random_seed(seed)
    return tf.keras.Sequential(
        [tf.keras.layers.Input((4,)), tf.keras.layers.Dense(6, activation="tanh"), tf.keras.layers.Dense(1)]
    )


def reference(steps: int) -> list[Any]:
    """The same training by hand on the data of all ranks."""
    model, (x, y) = net(), all_data()
    optimizer = tf.keras.optimizers.SGD(0.1)
    for _ in range(steps):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x) - y))
        optimizer.apply_gradients(
            zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
        )
    return list(model.get_weights())


def assert_close(model: Any, expected: list[Any]) -> None:
    for one, other in zip(model.get_weights(), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"groups": 2}, {"gradient_predivide_factor": 2.0}], ids=str)
@pytest.mark.parametrize("traced", [False, True])
def test_a_tape_trains_like_one_process(traced: bool, options: dict[str, Any]) -> None:
    model, (x, y) = net(), data(hvd.rank())
    optimizer = tf.keras.optimizers.SGD(0.1)

    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x) - y))
        tape = hvd.DistributedGradientTape(tape, **options)
        grads = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))

    run = tf.function(step) if traced else step
    if traced:
        optimizer.build(model.trainable_variables)
    for _ in range(5):
        run()
    assert_close(model, reference(5))
    assert_all_ranks_hold(model.get_weights())


@pytest.mark.parametrize("eager", [False, True])
def test_fit_trains_like_one_process(eager: bool) -> None:
    model = net()
    model.compile(hvd_tfk.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), loss="mse", run_eagerly=eager)
    x, y = data(hvd.rank())
    model.fit(x, y, batch_size=ROWS, epochs=5, shuffle=False, verbose=0)
    assert_close(model, reference(5))
    assert_all_ranks_hold(model.get_weights())
    assert type(model.optimizer).__name__ == "SGD"
    assert type(model.optimizer).__module__ == "horovod._keras"
    assert int(model.optimizer.iterations.numpy()) == 5


def test_gradients_of_a_tape_are_not_reduced_again() -> None:
    variable = tf.Variable([1.0])
    optimizer = hvd_tfk.DistributedOptimizer(tf.keras.optimizers.SGD(1.0), op=hvd.Sum)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(variable)
    tape = hvd.DistributedGradientTape(tape, op=hvd.Sum)
    optimizer.apply_gradients(zip(tape.gradient(loss, [variable]), [variable], strict=True))
    assert variable.numpy()[0] == 1.0 - hvd.size()


def test_ranks_may_have_built_other_models_before() -> None:
    for _ in range(hvd.rank()):
        net()
    model = net()
    model.compile(hvd_tfk.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), loss="mse")
    model.fit(*data(hvd.rank()), batch_size=ROWS, epochs=1, verbose=0)
    hvd.broadcast_variables(model.variables, 0)
    assert_all_ranks_hold(model.get_weights())


def test_gradients_are_added_up_before_they_travel() -> None:
    variable = tf.Variable([1.0])
    optimizer = hvd_tfk.DistributedOptimizer(tf.keras.optimizers.SGD(1.0), backward_passes_per_step=3)
    step = tf.function(
        lambda factor: optimizer.apply_gradients(optimizer.compute_gradients(lambda: factor * variable, [variable]))
    )
    seen = []
    for number in range(1, 7):
        step(tf.constant([float(number * (hvd.rank() + 1))]))
        seen.append(float(variable.numpy()[0]))
    mean = sum(range(1, hvd.size() + 1)) / hvd.size()
    assert seen == pytest.approx([1.0, 1.0, 1 - 6 * mean, 1 - 6 * mean, 1 - 6 * mean, 1 - 21 * mean])
    assert int(optimizer.iterations.numpy()) == 6


def test_local_variables_keep_their_gradients() -> None:
    model, (x, y) = net(), data(hvd.rank())
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x) - y))
    own = tf.GradientTape()
    with own:
        again = tf.reduce_mean(tf.square(model(x) - y))
    expected = own.gradient(again, model.layers[0].trainable_variables)
    tape = hvd.PartialDistributedGradientTape(tape, local_layers=model.layers[0])
    local, shared = tape.get_local_and_global_gradients(loss, model.trainable_variables)
    assert len(local) == 2
    assert len(shared) == 2
    for (_, grad), plain in zip(local, expected, strict=True):
        np.testing.assert_allclose(grad, plain / hvd.size(), rtol=1e-5)
    assert_all_ranks_hold([grad.numpy() for _, grad in shared])
    with pytest.raises(ValueError, match="local_layers"):
        hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers=3)


def test_callbacks_broadcast_average_and_warm_up() -> None:
    rank, size = hvd.rank(), hvd.size()
    model = net(seed=100 + rank)
    rate = 0.01 * size
    model.compile(hvd_tfk.DistributedOptimizer(tf.keras.optimizers.SGD(rate, momentum=0.5)), loss="mse")
    history = model.fit(
        *data(rank),
        batch_size=2,
        epochs=3,
        verbose=0,
        callbacks=[
            hvd_tfk.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd_tfk.callbacks.MetricAverageCallback(),
            hvd_tfk.callbacks.LearningRateWarmupCallback(rate, warmup_epochs=2),
        ],
    )
    assert_all_ranks_hold(model.get_weights())
    assert_all_ranks_hold([np.array(history.history["loss"])])
    assert history.history["lr"][-1] == pytest.approx(rate)
    assert history.history["lr"][0] == pytest.approx(rate * (1 / 2 * (size - 1) + 1) / size)


# With Keras 2, tf.keras and the package keras may be two.
@pytest.mark.parametrize("module", [hvd_tfk, *([hvd_keras] if KERAS_3 else [])], ids=lambda module: module.__name__)
def test_a_saved_model_is_plain_and_loads_distributed(tmp_path: Any, module: Any) -> None:
    model = net()
    model.compile(hvd_tfk.DistributedOptimizer(tf.keras.optimizers.Adam(0.01)), loss="mse")
    model.fit(*data(hvd.rank()), verbose=0)
    path = str(tmp_path / "model.keras")
    model.save(path)
    assert type(tf.keras.models.load_model(path).optimizer) is tf.keras.optimizers.Adam
    loaded = module.load_model(path)
    assert type(loaded.optimizer).__module__ == "horovod._keras"
    assert int(loaded.optimizer.iterations.numpy()) == 1
    loaded.fit(*data(hvd.rank()), verbose=0)
    assert_all_ranks_hold(loaded.get_weights())
    with pytest.raises(ValueError, match="once"):
        hvd_tfk.DistributedOptimizer(loaded.optimizer)


@pytest.fixture
def graph() -> Iterator[None]:
    with tf.Graph().as_default():
        yield


@pytest.mark.usefixtures("graph")
def test_tf1_training_with_hooks() -> None:
    start = tf.constant([1.0, 2.0]) * (hvd.rank() + 1)
    variable = tf.compat.v1.get_variable("x", initializer=start)
    optimizer = hvd.DistributedOptimizer(tf.compat.v1.train.AdagradOptimizer(0.1))
    assert optimizer.get_name() == "DistributedAdagradOptimizer"
    step = tf.compat.v1.train.get_or_create_global_step()
    train = optimizer.minimize(tf.reduce_sum(variable * float(hvd.rank() + 1)), global_step=step)
    config = tf.compat.v1.ConfigProto()
    config.gpu_options.visible_device_list = str(hvd.local_rank())
    hooks = [hvd.BroadcastGlobalVariablesHook(0), tf.compat.v1.train.StopAtStepHook(last_step=3)]
    seen = None
    with tf.compat.v1.train.MonitoredTrainingSession(hooks=hooks, config=config) as session:
        while not session.should_stop():
            session.run(train)
            if not session.should_stop():
                seen = session.run(variable)
    assert seen is not None
    assert (seen < [1.0, 2.0]).all()
    seen_by_all = hvd.allgather_object(seen.tolist(), session=tf.compat.v1.Session())
    assert all(other == seen.tolist() for other in seen_by_all)


@pytest.mark.usefixtures("graph")
def test_tf1_gradients_are_added_up_before_they_travel() -> None:
    variable = tf.compat.v1.get_variable("x", initializer=tf.constant([0.0]))
    optimizer = hvd.DistributedOptimizer(
        tf.compat.v1.train.GradientDescentOptimizer(1.0), backward_passes_per_step=2, average_aggregated_gradients=True
    )
    step = tf.compat.v1.train.get_or_create_global_step()
    train = optimizer.minimize(tf.reduce_sum(variable * float(hvd.rank() + 1)), global_step=step)
    mean = sum(range(1, hvd.size() + 1)) / hvd.size()
    seen = []
    with tf.compat.v1.Session() as session:
        session.run([tf.compat.v1.global_variables_initializer(), tf.compat.v1.local_variables_initializer()])
        for _ in range(4):
            session.run(train)
            seen.append(float(session.run(variable)[0]))
        assert session.run(step) == 4
    assert seen == pytest.approx([0.0, -mean, -mean, -2 * mean])


def test_variables_and_objects_of_one_rank() -> None:
    rank, root = hvd.rank(), hvd.size() - 1
    variables = [tf.Variable(tf.fill([2], rank)), tf.Variable([True, rank == 0]), tf.Variable(float(rank))]
    hvd.broadcast_variables(variables, root)
    assert variables[0].numpy().tolist() == [root] * 2
    assert variables[1].numpy().tolist() == [True, root == 0]
    assert variables[2].numpy() == root
    values = hvd.broadcast_([tf.Variable([rank]), tf.Variable([10.0 * rank])], 0)
    assert [value.numpy().tolist() for value in values] == [[0], [0.0]]
    assert hvd.broadcast_object({"rank": rank}, root) == {"rank": root}
    assert hvd.allgather_object(("x" * rank, rank)) == [("x" * r, r) for r in range(hvd.size())]
    with pytest.raises(RuntimeError, match="eager"):
        hvd.broadcast_global_variables(0)


def test_sync_batch_norm_uses_the_moments_of_all_ranks() -> None:
    x, _ = data(hvd.rank())
    everybodys, _ = all_data()
    result = hvd.SyncBatchNormalization(axis=-1)(x, training=True)
    expected = (x - everybodys.mean(0)) / np.sqrt(everybodys.var(0) + 1e-3)
    np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-4)
    with pytest.raises(ValueError, match="fused"):
        hvd.SyncBatchNormalization(fused=True)


def test_arguments_that_do_not_go_together() -> None:
    sgd = tf.keras.optimizers.SGD
    with pytest.raises(ValueError, match="predivide"):
        hvd_tfk.DistributedOptimizer(sgd(), op=hvd.Sum, gradient_predivide_factor=2.0)
    with pytest.raises(ValueError, match="groups"):
        hvd_tfk.DistributedOptimizer(sgd(), groups=0)
    with pytest.raises(ValueError, match="Average and Sum"):
        hvd_tfk.DistributedOptimizer(sgd(), op=hvd.Max)
    with pytest.raises(ValueError, match="backward_passes"):
        hvd_tfk.DistributedOptimizer(sgd(), backward_passes_per_step=0)
    for make, wrapped in (
        (hvd.DistributedGradientTape, tf.GradientTape()),
        (hvd.PartialDistributedGradientTape, tf.GradientTape()),
        (hvd.DistributedOptimizer, sgd()),
        (hvd_tfk.DistributedOptimizer, sgd()),
    ):
        with pytest.warns(DeprecationWarning, match="groups") as warned:
            make(wrapped, num_groups=2)
        assert warned[0].filename == __file__
