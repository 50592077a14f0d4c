"""Mistakes with Keras get an answer that says what to do; arguments of old scripts are taken."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
from tf_world import KERAS_3

pytestmark = pytest.mark.two_ranks

keras = tf.keras
callbacks = hvd_keras.callbacks
DATA = (np.ones((4, 1), np.float32), np.ones((4, 1), np.float32))


def net() -> Any:
    return keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])


def sgd(**options: Any) -> Any:
    return hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.1), **options)


def test_an_optimizer_is_wrapped_once() -> None:
    with pytest.raises(ValueError, match=r"SGD is a hvd.DistributedOptimizer already; wrap it once"):
        hvd_keras.DistributedOptimizer(sgd())
    with pytest.raises(ValueError, match="wrap it once"):
        hvd.DistributedOptimizer(sgd())
    inner = keras.mixed_precision.LossScaleOptimizer(sgd())
    with pytest.raises(ValueError, match="wrap it once"):
        hvd_keras.DistributedOptimizer(inner)


@pytest.mark.parametrize("thing", ["sgd", None, 3])
def test_only_optimizers_are_wrapped(thing: Any) -> None:
    with pytest.raises(ValueError, match="expected an optimizer"):
        hvd_keras.DistributedOptimizer(thing)


def test_a_class_is_no_optimizer() -> None:
    with pytest.raises(ValueError, match=r"expected an optimizer, got the class SGD: make one, SGD\("):
        hvd_keras.DistributedOptimizer(keras.optimizers.SGD)


@pytest.mark.parametrize("groups", [0, -1, True, "ab", 1.5, [1, 2]])
def test_groups_are_a_number_or_lists(groups: Any) -> None:
    with pytest.raises(ValueError, match="groups should be a positive integer or a list of lists"):
        sgd(groups=groups)


@pytest.mark.parametrize("op", [hvd.Adasum, hvd.Min, hvd.Max, hvd.Product])
def test_gradients_are_averaged_or_added(op: int) -> None:
    with pytest.raises(ValueError, match="Average and Sum"):
        sgd(op=op)


def test_one_way_of_adding_up_at_a_time() -> None:
    if not KERAS_3:
        return  # Keras 2 has no gradient_accumulation_steps
    plain = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    with pytest.raises(ValueError, match=r"backward_passes_per_step=2 .* gradient_accumulation_steps=2"):
        hvd_keras.DistributedOptimizer(plain, backward_passes_per_step=2)
    with pytest.raises(ValueError, match="use one of them"):
        hvd_keras.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(plain), backward_passes_per_step=2)


def warnings_of(run: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    return [str(warning.message) for warning in caught if "hvd.DistributedOptimizer" in str(warning.message)]


def every_callback() -> list[Any]:
    return [
        callbacks.BroadcastGlobalVariablesCallback(0),
        callbacks.MetricAverageCallback(),
        callbacks.LearningRateScheduleCallback(0.1, 1.0),
        callbacks.LearningRateWarmupCallback(0.1),
    ]


def test_a_plain_optimizer_is_warned_of_once() -> None:
    model = net()
    model.compile(keras.optimizers.SGD(0.1), loss="mse")
    found = warnings_of(lambda: model.fit(*DATA, verbose=0, callbacks=every_callback()))
    assert len(found) == (1 if hvd.size() > 1 else 0)
    assert all(f"plain SGD: its gradients are not averaged over the {hvd.size()} ranks" in text for text in found)
    assert warnings_of(lambda: model.fit(*DATA, verbose=0, callbacks=every_callback())) == []


def test_a_wrapped_optimizer_is_not_warned_of() -> None:
    for optimizer in (sgd(), keras.mixed_precision.LossScaleOptimizer(sgd())):
        model = net()
        model.compile(optimizer, loss="mse")
        assert warnings_of(lambda model=model: model.fit(*DATA, verbose=0, callbacks=every_callback())) == []


class OwnStep(keras.Model):  # type: ignore[misc,name-defined]
    """Reduces in its train_step: nothing is missing."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, x: Any) -> Any:
        return self.dense(x)

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
        grads = hvd.DistributedGradientTape(tape).gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables, strict=True))
        return {"loss": loss}


def test_a_train_step_of_its_own_is_not_warned_of() -> None:
    model = OwnStep()
    model.compile(keras.optimizers.SGD(0.1))
    assert warnings_of(lambda: model.fit(*DATA, verbose=0, callbacks=every_callback())) == []


def test_experimental_run_tf_function_is_tolerated() -> None:
    for optimizer in (sgd(), keras.mixed_precision.LossScaleOptimizer(sgd())):
        model = net()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.compile(optimizer=optimizer, loss="mse", experimental_run_tf_function=False)
        notes = [str(w.message) for w in caught if "experimental_run_tf_function" in str(w.message)]
        assert len(notes) == (1 if KERAS_3 else 0)
        model.fit(*DATA, verbose=0)


def test_other_compile_errors_stay(tmp_path: Any) -> None:
    with pytest.raises(TypeError, match="no_such_argument"):
        net().compile(sgd(), loss="mse", no_such_argument=1)
    if KERAS_3:
        with pytest.raises(TypeError, match="experimental_run_tf_function"):
            net().compile(keras.optimizers.SGD(0.1), experimental_run_tf_function=False)
    model = net()
    model.compile(sgd(), "mse", experimental_run_tf_function=False)
    model.save(str(tmp_path / "model.keras"))
    assert keras.models.load_model(str(tmp_path / "model.keras")).optimizer is not None


def test_variables_of_a_broadcast_are_variables() -> None:
    for local in (3, "ab", [1]):
        with pytest.raises(ValueError, match="local_variables must be a variable or a collection"):
            callbacks.BroadcastGlobalVariablesCallback(0, local_variables=local)
    assert callbacks.BroadcastGlobalVariablesCallback(0, local_variables=tf.Variable(1.0)).broadcast_done is False


def test_a_model_that_is_not_built_gets_its_variables_in_the_first_batch() -> None:
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(sgd(), loss="mse")
    model.fit(*DATA, verbose=0, callbacks=[callbacks.BroadcastGlobalVariablesCallback(0)])
    weights = hvd.allgather_object([array.tolist() for array in model.get_weights()])
    assert all(other == weights[0] for other in weights)


@pytest.mark.usefixtures("several_ranks")
def test_metrics_that_only_some_ranks_have_are_named() -> None:
    model = net()
    model.compile(sgd(), loss="mse")
    validation = {"validation_data": DATA} if hvd.rank() == 0 else {}
    with pytest.raises(ValueError, match=r"val_loss.*rank 0.*give every rank"):
        model.fit(*DATA, verbose=0, callbacks=[callbacks.MetricAverageCallback()], **validation)


def test_average_is_deprecated_for_op() -> None:
    with pytest.warns(DeprecationWarning, match="use hvd.Average or hvd.Sum") as told:
        assert float(hvd_keras.allreduce([1.0], average=False)[0]) == hvd.size()
    assert __file__ in [one.filename for one in told]
    with pytest.raises(ValueError, match="supersedes average"):
        hvd_keras.allreduce([1.0], average=True, op=hvd.Sum)
