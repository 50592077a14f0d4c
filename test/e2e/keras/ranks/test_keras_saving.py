"""Models that are loaded again: with the optimizer's state, from a path or an open file, by a factory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import keras
import pytest

import horovod.keras as hvd
from keras_world import ROWS, all_rows, assert_equal_on_all_ranks, fit, flat, make_model, my_rows

FORMATS = ("model.keras", "model.h5")


@dataclass(frozen=True)
class Saved:
    """A model that was trained, saved in both formats, and trained on."""

    folder: Path
    state: Any  # of the optimizer, as it was saved
    weights: Any  # of the model, in the end

    def assert_goes_on(self, loaded: Any) -> None:
        """As if it had not stopped: with the same state, and with all ranks."""
        assert (type(loaded.optimizer).__name__, type(loaded.optimizer).__module__) == ("SGD", "horovod._keras")
        assert (flat(loaded.optimizer.variables) == self.state).all()
        fit(loaded, my_rows(2), ROWS)
        assert_equal_on_all_ranks(loaded.get_weights())
        assert (flat(loaded.get_weights()) == self.weights).all()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    hvd.init()
    folder = tmp_path_factory.mktemp("saved")
    model = make_model(None)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.05, momentum=0.9))
    model.compile(optimizer, loss="mean_squared_error")  # Keras cannot read "mse" from an .h5 file
    fit(model, my_rows(2), ROWS)
    for name in FORMATS:
        model.save(folder / name)
    state = flat(model.optimizer.variables)
    fit(model, my_rows(2), ROWS)
    return Saved(folder, state, flat(model.get_weights()))


@pytest.mark.parametrize("name", FORMATS)
def test_a_loaded_model_goes_on_as_if_it_had_not_stopped(name: str, saved: Saved) -> None:
    saved.assert_goes_on(hvd.load_model(saved.folder / name))


def test_an_open_file_is_loaded(saved: Saved) -> None:
    with h5py.File(saved.folder / "model.h5", "r") as file:
        loaded = hvd.load_model(file)
    saved.assert_goes_on(loaded)


@pytest.mark.parametrize("name", FORMATS)
def test_a_factory_makes_the_optimizer_of_a_file(name: str, saved: Saved) -> None:
    made = []

    def make(**config: Any) -> Any:
        made.append(hvd.DistributedOptimizer(keras.optimizers.SGD(**config)))
        return made[-1]

    loaded = hvd.load_model(saved.folder / name, custom_objects={"SGD": make})
    assert loaded.optimizer is made[-1]
    saved.assert_goes_on(loaded)


def test_a_saved_model_loads_without_horovod(saved: Saved) -> None:
    loaded = keras.models.load_model(saved.folder / "model.keras")
    assert "horovod" not in type(loaded.optimizer).__module__
    assert (flat(loaded.optimizer.variables) == saved.state).all()


class OwnSgd(keras.optimizers.SGD):  # type: ignore[misc]
    """An optimizer that Keras does not know."""


def test_optimizers_of_ones_own_are_loaded(tmp_path: Path) -> None:
    model = make_model(OwnSgd(0.05, momentum=0.9))
    fit(model, all_rows(1), ROWS * hvd.size())
    model.save(tmp_path / "model.keras")
    given: list[dict[str, Any]] = [{"custom_objects": {"OwnSgd": OwnSgd}}, {"custom_optimizers": [OwnSgd]}]
    for one in given:
        loaded = hvd.load_model(tmp_path / "model.keras", **one)
        assert isinstance(loaded.optimizer, OwnSgd)
        assert (flat(loaded.optimizer.variables) == flat(model.optimizer.variables)).all()
    fit(loaded, my_rows(2), ROWS)
    assert_equal_on_all_ranks(loaded.get_weights())
