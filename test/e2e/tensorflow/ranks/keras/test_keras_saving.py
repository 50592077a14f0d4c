"""Saved models load without Horovod, and with hvd.load_model() the optimizer is distributed and keeps its state."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
from keras_saving import *  # noqa: F403  the tests that horovod.keras has too
from keras_saving import FORMATS

pytestmark = pytest.mark.two_ranks

keras = tf.keras
DATA = (np.ones((4, 2), np.float32), np.ones((4, 1), np.float32))


def compiled(optimizer: Any = None) -> Any:
    keras.utils.set_random_seed(4)
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    # Compiling a step with XLA, Keras' default, takes longer than all else here; test_tf_xla_training.py has such steps.
    distributed = hvd_keras.DistributedOptimizer(optimizer or keras.optimizers.Adam(0.03))
    model.compile(distributed, loss="mean_squared_error", jit_compile=False)
    return model


def trained(optimizer: Any = None) -> Any:
    model = compiled(optimizer)
    model.fit(*DATA, verbose=0, epochs=2)
    return model


def variables_of(model: Any) -> list[Any]:
    variables = model.optimizer.variables
    return [np.asarray(variable) for variable in (variables() if callable(variables) else variables)]


def saved_as(model: Any, path: Path) -> str:
    model.save(str(path))
    return str(path)


def assert_same_state(loaded: Any, model: Any) -> None:
    for mine, theirs in ((loaded.get_weights(), model.get_weights()), (variables_of(loaded), variables_of(model))):
        assert len(mine) == len(theirs)
        assert all((one == other).all() for one, other in zip(mine, theirs, strict=True))


def assert_trains_together(model: Any) -> None:
    assert type(model.optimizer).__module__ == "horovod._keras"
    x, y = DATA
    model.fit(x * (hvd.rank() + 1), y, verbose=0)
    weights = hvd.allgather_object([array.tobytes() for array in model.get_weights()])
    assert all(other == weights[0] for other in weights)


def test_weights_are_loaded(tmp_path: Path) -> None:
    model = trained()
    path = str(tmp_path / "model.weights.h5")
    model.save_weights(path)
    other = trained(keras.optimizers.SGD(0.1))
    other.load_weights(path)
    assert all((a == b).all() for a, b in zip(other.get_weights(), model.get_weights(), strict=True))
    assert_trains_together(other)


def test_a_model_loads_where_there_is_no_horovod(tmp_path: Path) -> None:
    paths = [saved_as(trained(keras.optimizers.RMSprop(0.1, momentum=0.5)), tmp_path / name) for name in FORMATS]
    program = (
        "import sys; sys.modules['horovod'] = None; import tensorflow as tf\n"
        f"for path in {paths!r}:\n"
        "    optimizer = tf.keras.models.load_model(path).optimizer\n"
        "    assert type(optimizer) is tf.keras.optimizers.RMSprop, type(optimizer)"
    )
    if hvd.rank() == 0:
        subprocess.run([sys.executable, "-c", program], check=True, timeout=100)
    hvd.broadcast_object(None, 0)


def test_a_file_that_holds_the_wrapper_is_opened(tmp_path: Path) -> None:
    """As other versions of Horovod write it."""
    model = trained(keras.optimizers.SGD(0.1, momentum=0.5))
    path = saved_as(model, tmp_path / "model.keras")
    changed = str(tmp_path / "wrapper.keras")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "config.json":
                config = json.loads(content)
                config["compile_config"]["optimizer"].update(module="horovod._keras", registered_name="SGD")
                content = json.dumps(config).encode()
            new.writestr(name, content)
    loaded = hvd_keras.load_model(changed)
    assert_same_state(loaded, model)
    assert_trains_together(loaded)
    again = saved_as(loaded, tmp_path / "again.keras")
    assert type(keras.models.load_model(again).optimizer) is keras.optimizers.SGD


def test_a_loaded_model_is_compiled_again(tmp_path: Path) -> None:
    loaded = hvd_keras.load_model(saved_as(trained(), tmp_path / "model.keras"))
    loaded.compile(loaded.optimizer, loss="mean_squared_error")
    assert_trains_together(loaded)
    with pytest.raises(ValueError, match="use it as it is"):
        hvd_keras.DistributedOptimizer(loaded.optimizer)
    loaded.compile(hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mean_squared_error")
    assert_trains_together(loaded)


def test_a_loss_scale_optimizer_is_loaded(tmp_path: Path) -> None:
    inner = hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.5))
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.mixed_precision.LossScaleOptimizer(inner), loss="mean_squared_error")
    model.fit(*DATA, verbose=0)
    path = saved_as(model, tmp_path / "model.keras")
    assert isinstance(keras.models.load_model(path).optimizer, keras.mixed_precision.LossScaleOptimizer)
    loaded = hvd_keras.load_model(path)
    assert_same_state(loaded, model)
    assert_trains_together(loaded)


def test_a_model_without_optimizer_is_loaded(tmp_path: Path) -> None:
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    assert getattr(hvd_keras.load_model(saved_as(model, tmp_path / "model.keras")), "optimizer", None) is None


def test_only_one_rank_restores_and_the_others_get_it(tmp_path: Path) -> None:
    model = trained()
    path = saved_as(model, tmp_path / "model.keras")
    mine = hvd_keras.load_model(path) if hvd.rank() == 0 else compiled(keras.optimizers.Adam(0.5))
    x, y = DATA
    mine.fit(x, y, verbose=0, callbacks=[hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0)])
    state = hvd.allgather_object([array.tobytes() for array in (*mine.get_weights(), *variables_of(mine))])
    assert all(other == state[0] for other in state)
    assert int(mine.optimizer.iterations.numpy()) == 3


def test_from_config_makes_another_like_it() -> None:
    optimizer = hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.25, momentum=0.5), backward_passes_per_step=2)
    for other in (optimizer.from_config(optimizer.get_config()), type(optimizer).from_config(optimizer.get_config())):
        assert other.get_config() == optimizer.get_config()
        assert type(other).__name__ == "SGD"
        assert type(other).__module__ == "horovod._keras"
        assert other._agg_helper.backward_passes_per_step == 2
        assert other._agg_helper.counter is not optimizer._agg_helper.counter
