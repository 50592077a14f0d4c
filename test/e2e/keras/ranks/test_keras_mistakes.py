"""Mistakes get an answer that says what to do, and what is right gets none."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

import horovod.keras as hvd
from documented import undocumented
from horovod._common.arrays import ArrayCollectives
from horovod._keras import private
from keras_world import ROWS, assert_usable, fit, make_model, my_rows

callbacks = hvd.callbacks
optimizers = keras.optimizers


def test_keras_has_all_that_is_used_of_its_inside() -> None:
    """A name that this version of Keras has lost is one more line in horovod/_keras/private.py."""
    assert private.missing(keras, make_model(optimizers.SGD(0.1))) == []
    assert private.missing(SimpleNamespace()) == [], "tf.keras of Keras 2 has no __version__"


def test_a_name_that_keras_has_lost_is_said_with_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(private._NAME_TABLES, "keras.src.api_export", ("NO_SUCH_TABLE",))
    with pytest.warns(RuntimeWarning, match=rf"api_export\.NO_SUCH_TABLE, which Keras {keras.__version__} does not"):
        private.check(keras)


def test_help_answers_for_every_public_name() -> None:
    assert undocumented(hvd, hvd.callbacks, hvd.elastic) == []


@pytest.mark.usefixtures("several_ranks")
def test_metrics_that_only_some_ranks_have_are_named() -> None:
    model = make_model(hvd.DistributedOptimizer(optimizers.SGD(0.05)))
    validation = {"validation_data": my_rows()} if hvd.rank() == 0 else {}
    with pytest.raises(ValueError, match=r"val_loss.*rank 0.*give every rank"):
        model.fit(*my_rows(), verbose=0, callbacks=[callbacks.MetricAverageCallback()], **validation)
    assert_usable()


def test_metrics_may_be_numbers_and_arrays_or_none_at_all() -> None:
    callback = callbacks.MetricAverageCallback()
    logs: dict[str, Any] = {"a": 1.0 * hvd.rank(), "b": np.float32(2.0), "c": np.array([1.0, hvd.rank()]), "d": 3}
    callback.on_epoch_end(0, logs)
    mean = (hvd.size() - 1) / 2
    assert (logs["a"], logs["b"], logs["c"].tolist(), logs["d"]) == (mean, 2.0, [1.0, mean], 3)
    assert type(logs["a"]) is float
    callback.on_epoch_end(1, None)
    callback.on_epoch_end(2, {})


def test_no_compression_may_be_said_with_none() -> None:
    model = make_model(hvd.DistributedOptimizer(optimizers.SGD(0.05), compression=None))
    fit(model, my_rows(), ROWS)
    assert_usable()


@pytest.mark.usefixtures("on_jax", "several_ranks")
def test_a_refusal_leaves_no_array_behind_that_is_still_written() -> None:
    collectives, size = ArrayCollectives("test"), hvd.size()
    first, second = np.ones(3, np.float32), np.ones(3, np.float32)
    groups = {"a": [np.ones(2, np.float32)], "b": [np.ones(2, np.uint16)]}
    if hvd.rank() > 0:
        collectives.allreduce_([first], ["refused"], hvd.Sum)
        collectives.broadcast_([second], ["refused"], 1)
    else:
        with pytest.raises(ValueError, match="refused"):
            collectives.allreduce_([first, first.copy()], ["refused", "refused"], hvd.Sum)
        with pytest.raises(ValueError, match="refused"):
            collectives.broadcast_([second, second.copy()], ["refused", "refused"], 1)
        with pytest.raises(ValueError, match="uint16"):  # before anything is sent
            collectives.grouped_allreduce_(groups, hvd.Sum, 1.0, 1.0, 0)
    assert first.tolist() == [size] * 3
    own = np.ones(2, np.float32)
    collectives.grouped_allreduce_({"a": [own]}, hvd.Sum, 1.0, 1.0, 0)
    assert own.tolist() == [size] * 2


class OwnStep(keras.Sequential):  # type: ignore[misc]
    """Has a train_step of its own, where it may reduce."""

    def train_step(self, *data: Any) -> Any:
        return super().train_step(*data)


def every_callback() -> list[Any]:
    return [
        callbacks.BroadcastGlobalVariablesCallback(0),
        callbacks.MetricAverageCallback(),
        callbacks.LearningRateScheduleCallback(0.1, 1.0),
        callbacks.LearningRateWarmupCallback(0.1),
    ]


def warnings_of(model: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(model, my_rows(), ROWS, callbacks=every_callback())
    return [str(warning.message) for warning in caught if "hvd.DistributedOptimizer" in str(warning.message)]


def test_a_plain_optimizer_is_warned_of_once() -> None:
    model = make_model(optimizers.SGD(0.05))
    found = warnings_of(model)
    assert len(found) == (1 if hvd.size() > 1 else 0)
    assert all(f"plain SGD: its gradients are not averaged over the {hvd.size()} ranks" in text for text in found)
    assert warnings_of(model) == []


def test_a_train_step_of_its_own_is_not_warned_of() -> None:
    model = OwnStep([keras.layers.Input((6,)), keras.layers.Dense(1)])
    model.compile(optimizers.SGD(0.05), loss="mse")
    assert warnings_of(model) == []


@pytest.mark.usefixtures("not_on_jax")
def test_one_way_of_adding_up_at_a_time() -> None:
    plain = optimizers.SGD(0.1, gradient_accumulation_steps=2)
    for optimizer in (plain, optimizers.LossScaleOptimizer(plain)):
        with pytest.raises(ValueError, match=r"backward_passes_per_step=2 .* gradient_accumulation_steps=2 .*use one"):
            hvd.PartialDistributedOptimizer(optimizer, backward_passes_per_step=2)


def test_only_optimizers_are_wrapped_and_once_only() -> None:
    wrapped = hvd.DistributedOptimizer(optimizers.SGD(0.05))
    for twice in (wrapped, optimizers.LossScaleOptimizer(wrapped)):
        with pytest.raises(ValueError, match="already"):
            hvd.DistributedOptimizer(twice)
    for thing in ("sgd", None, 3, keras.layers.Dense(1)):
        with pytest.raises(ValueError, match="expected an optimizer"):
            hvd.DistributedOptimizer(thing)
    with pytest.raises(ValueError, match=r"got the class SGD: make one, SGD\("):
        hvd.DistributedOptimizer(optimizers.SGD)
    assert_usable()


def test_local_variables_must_be_variables() -> None:
    for local in ("kernel", 3, [1]):
        with pytest.raises(ValueError, match="local_variables"):
            callbacks.BroadcastGlobalVariablesCallback(0, local_variables=local)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"op": hvd.Adasum}, "Average and Sum"),
        ({"op": hvd.Sum, "gradient_predivide_factor": 2.0}, "gradient_predivide_factor"),
        ({"groups": 0}, "groups"),
        ({"groups": "all"}, "groups"),
        ({"groups": [1, 2]}, "groups"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        hvd.DistributedOptimizer(optimizers.SGD(0.05), **options)


def test_local_layers_must_be_layers() -> None:
    with pytest.raises(ValueError, match="local_layers"):
        hvd.PartialDistributedOptimizer(optimizers.SGD(0.05), local_layers="first")
