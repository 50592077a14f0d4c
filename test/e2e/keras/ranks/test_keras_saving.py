"""Models that are loaded again: with the optimizer's state, from a path or an open file, by a factory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import keras
import pytest

import horovod.keras as hvd
from keras_world import ROWS, all_rows, assert_equal_on_all_ranks, fit, flat, make_model, my_rows

FORMATS = ("model.keras", "model.h5")


def trained(path: Path) -> Any:
    model = make_model(None)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.05, momentum=0.9))
    model.compile(optimizer, loss="mean_squared_error")  # Keras cannot read "mse" from an .h5 file
    fit(model, my_rows(2), ROWS)
    model.save(path)
    return model


def assert_goes_on(loaded: Any, model: Any) -> None:
    """As if it had not stopped: with the same state, and with all ranks."""
    assert type(loaded.optimizer).__name__ == type(model.optimizer).__name__
    assert type(loaded.optimizer).__module__ == "horovod._keras"
    assert [v.shape for v in loaded.optimizer.variables] == [v.shape for v in model.optimizer.variables]
    assert (flat(loaded.optimizer.variables) == flat(model.optimizer.variables)).all()
    for one in (model, loaded):
        fit(one, my_rows(2), ROWS)
    assert_equal_on_all_ranks(loaded.get_weights())
    assert (flat(loaded.get_weights()) == flat(model.get_weights())).all()


@pytest.mark.parametrize("name", FORMATS)
def test_a_loaded_model_goes_on_as_if_it_had_not_stopped(name: str, tmp_path: Path) -> None:
    model = trained(tmp_path / name)
    assert_goes_on(hvd.load_model(tmp_path / name), model)


def test_an_open_file_is_loaded(tmp_path: Path) -> None:
    model = trained(tmp_path / "model.h5")
    with h5py.File(tmp_path / "model.h5", "r") as file:
        loaded = hvd.load_model(file)
    assert_goes_on(loaded, model)


@pytest.mark.parametrize("name", FORMATS)
def test_a_factory_makes_the_optimizer_of_a_file(name: str, tmp_path: Path) -> None:
    model = trained(tmp_path / name)
    made = []

    def make(**config: Any) -> Any:
        made.append(hvd.DistributedOptimizer(keras.optimizers.SGD(**config)))
        return made[-1]

    loaded = hvd.load_model(tmp_path / name, custom_objects={"SGD": make})
    assert loaded.optimizer is made[-1]
    assert_goes_on(loaded, model)


def test_a_saved_model_loads_without_horovod(tmp_path: Path) -> None:
    model = trained(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert "horovod" not in type(loaded.optimizer).__module__
    assert (flat(loaded.optimizer.variables) == flat(model.optimizer.variables)).all()


class OwnSgd(keras.optimizers.SGD):  # type: ignore[misc]
    """An optimizer that Keras does not know."""


@pytest.mark.parametrize("how", ["custom_optimizers", "custom_objects"])
def test_optimizers_of_ones_own_are_loaded(how: str, tmp_path: Path) -> None:
    model = make_model(OwnSgd(0.05, momentum=0.9))
    fit(model, all_rows(1), ROWS * hvd.size())
    model.save(tmp_path / "model.keras")
    given: Any = (
        {"custom_optimizers": [OwnSgd]} if how == "custom_optimizers" else {"custom_objects": {"OwnSgd": OwnSgd}}
    )
    loaded = hvd.load_model(tmp_path / "model.keras", **given)
    assert isinstance(loaded.optimizer, OwnSgd)
    fit(loaded, my_rows(2), ROWS)
    assert_equal_on_all_ranks(loaded.get_weights())
