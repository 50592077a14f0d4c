"""Models that are loaded again, by both modules for Keras (keras_face.py): from a path or an open file, by a factory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from keras_face import DATA, Face, flat, optimizer_variables

FORMATS = ("model.keras", "model.h5")


@dataclass(frozen=True)
class Saved:
    """A model that was trained, saved in both formats, and trained on."""

    face: Face
    optimizer: Any  # its class
    folder: Path
    state: Any  # of model and optimizer, as they were saved
    weights: Any  # of the model, in the end

    def ways(self) -> list[dict[str, Any]]:
        """How load_model() is told a class."""
        if not self.is_own:
            return [{}]
        return [{"custom_objects": {self.optimizer.__name__: self.optimizer}}, {"custom_optimizers": [self.optimizer]}]

    @property
    def is_own(self) -> bool:
        return self.optimizer is not self.face.keras.optimizers.Adam

    def assert_is_loaded(self, model: Any, with_state: bool = True) -> None:
        assert isinstance(model.optimizer, self.optimizer)
        assert float(np.asarray(model.optimizer.learning_rate)) == pytest.approx(0.03)
        if with_state:
            assert (state_of(model) == self.state).all()

    def assert_goes_on(self, model: Any) -> None:
        """As if it had not stopped, with all ranks."""
        names = (type(model.optimizer).__name__, type(model.optimizer).__module__)
        assert names == (self.optimizer.__name__, "horovod._keras")
        fit(self.face, model)
        assert self.face.same_everywhere(model.get_weights())
        assert (flat(model.get_weights()) == self.weights).all()


def state_of(model: Any) -> Any:
    return flat([*model.get_weights(), *optimizer_variables(model)])


def fit(face: Face, model: Any) -> None:
    x, y = DATA
    model.fit(x * (face.hvd.rank() + 1), y, verbose=0)


@pytest.fixture(scope="module", params=["Keras' own", "the user's"])
def saved(face: Face, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Saved:
    face.hvd.init()
    optimizers = face.keras.optimizers

    class Own(optimizers.RMSprop):  # type: ignore[misc,name-defined]
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)

    chosen = optimizers.Adam if request.param == "Keras' own" else Own
    folder = tmp_path_factory.mktemp("saved")
    face.keras.utils.set_random_seed(4)
    model = face.model(face.hvd.DistributedOptimizer(chosen(learning_rate=0.03)), loss="mean_squared_error")
    fit(face, model)
    for name in FORMATS:
        model.save(str(folder / name))
    state = state_of(model)
    fit(face, model)
    return Saved(face, chosen, folder, state, flat(model.get_weights()))


@pytest.mark.parametrize("name", FORMATS)
def test_a_loaded_model_goes_on_as_if_it_had_not_stopped(name: str, saved: Saved) -> None:
    for how in saved.ways():
        loaded = saved.face.hvd.load_model(saved.folder / name, **how)
        saved.assert_is_loaded(loaded)
        saved.assert_goes_on(loaded)


def test_an_open_file_is_loaded(saved: Saved) -> None:
    with h5py.File(saved.folder / "model.h5", "r") as file:
        loaded = saved.face.hvd.load_model(file, **saved.ways()[0])
    saved.assert_is_loaded(loaded)
    saved.assert_goes_on(loaded)


@pytest.mark.parametrize("name", FORMATS)
def test_a_factory_makes_the_optimizer_of_a_file(name: str, saved: Saved) -> None:
    made = []

    def make(**config: Any) -> Any:
        made.append(saved.face.hvd.DistributedOptimizer(saved.optimizer(**config)))
        return made[-1]

    factory = {saved.optimizer.__name__: make}
    loaded = saved.face.hvd.load_model(str(saved.folder / name), custom_objects=factory)
    assert made
    if not saved.is_own or name == "model.keras":  # from an .h5 file Keras 3 makes one of the user's once more
        assert loaded.optimizer is made[-1]
    saved.assert_is_loaded(loaded, with_state=saved.face.is_keras_3)  # Keras 2 restores with the first step
    saved.assert_goes_on(loaded)


@pytest.mark.parametrize("name", FORMATS)
def test_keras_alone_loads_the_plain_optimizer(name: str, saved: Saved) -> None:
    known = {saved.optimizer.__name__: saved.optimizer}
    loaded = saved.face.keras.models.load_model(str(saved.folder / name), custom_objects=known)
    assert type(loaded.optimizer) is type(saved.optimizer())  # on torch Keras makes another than it is asked for
    saved.assert_is_loaded(loaded, with_state=name == "model.keras")


def test_an_optimizer_that_nobody_knows_is_asked_for(saved: Saved) -> None:
    if saved.is_own:
        with pytest.raises(ValueError, match=r"custom_optimizers=\[TheClass\]"):
            saved.face.hvd.load_model(saved.folder / "model.keras")


def test_the_best_model_is_kept(face: Face, tmp_path: Path) -> None:
    of_tensorflow = face.hvd.__name__ == "horovod.tensorflow.keras"
    options = {"save_weights_only": False} if of_tensorflow and face.is_keras_3 else {}
    best = face.hvd.callbacks.BestModelCheckpoint(monitor="loss", mode="min", **options)
    assert best.save_best_only
    assert best.filepath is None
    best.filepath = str(tmp_path / "best.keras")
    model = face.model(face.sgd(), loss="mean_squared_error")
    model.fit(*DATA, verbose=0, epochs=2, callbacks=[face.hvd.callbacks.MetricAverageCallback(), best])
    assert face.hvd.load_model(best.filepath).optimizer is not None
