"""Mistakes with Keras get an answer that says what to do; arguments of old scripts are taken."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import tensorflow as tf

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
from keras_face import DATA, Face
from keras_mistakes import *  # noqa: F403  the tests that horovod.keras has too
from tf_world import KERAS_3

pytestmark = pytest.mark.two_ranks

keras = tf.keras
callbacks = hvd_keras.callbacks


def net() -> Any:
    return keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])


def sgd(**options: Any) -> Any:
    return hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.1), **options)


def test_one_way_of_adding_up_at_a_time() -> None:
    if not KERAS_3:
        return  # Keras 2 has no gradient_accumulation_steps
    plain = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    with pytest.raises(ValueError, match=r"backward_passes_per_step=2 .* gradient_accumulation_steps=2"):
        hvd_keras.DistributedOptimizer(plain, backward_passes_per_step=2)
    with pytest.raises(ValueError, match="use one of them"):
        hvd_keras.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(plain), backward_passes_per_step=2)


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


def test_a_tape_in_a_train_step_of_its_own_is_not_warned_of(face: Face) -> None:
    model = OwnStep()
    model.compile(keras.optimizers.SGD(0.1))
    assert face.warnings_of(model) == []


def test_the_module_of_tensorflow_wraps_once_too() -> None:
    with pytest.raises(ValueError, match="wrap it once"):
        hvd.DistributedOptimizer(sgd())


def test_one_variable_may_be_left_out_of_a_broadcast() -> None:
    assert callbacks.BroadcastGlobalVariablesCallback(0, local_variables=tf.Variable(1.0)).broadcast_done is False


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


def test_a_model_that_is_not_built_gets_its_variables_in_the_first_batch() -> None:
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(sgd(), loss="mse")
    model.fit(*DATA, verbose=0, callbacks=[callbacks.BroadcastGlobalVariablesCallback(0)])
    weights = hvd.allgather_object([array.tolist() for array in model.get_weights()])
    assert all(other == weights[0] for other in weights)


def test_average_is_deprecated_for_op() -> None:
    with pytest.warns(DeprecationWarning, match="use hvd.Average or hvd.Sum") as told:
        assert float(hvd_keras.allreduce([1.0], average=False)[0]) == hvd.size()
    assert __file__ in [one.filename for one in told]
    with pytest.raises(ValueError, match="supersedes average"):
        hvd_keras.allreduce([1.0], average=True, op=hvd.Sum)
