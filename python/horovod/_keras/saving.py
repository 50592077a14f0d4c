"""Loads saved models and makes their optimizers distributed ones."""

from __future__ import annotations

import contextlib
import json
import warnings
import zipfile
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import h5py

from horovod._common.gradient_options import Options
from horovod._keras import private
from horovod._keras.backend import Backend
from horovod._keras.checks import is_distributed
from horovod._keras.optimizer import distribute_in_place

__all__ = ["load_model"]

_WRAPPER = "'module': 'horovod."  # part of Keras' error for an unknown class


def _optimizers_of(keras: Any) -> dict[str, Any]:
    """Keras' own optimizers by name; the distributed ones have the same names."""
    base = keras.optimizers.Optimizer
    return {
        name: one for name, one in vars(keras.optimizers).items() if isinstance(one, type) and issubclass(one, base)
    }


def _is_open_file(filepath: Any) -> bool:
    return hasattr(filepath, "attrs") and hasattr(filepath, "keys")


def _saved_optimizer(filepath: Any) -> str | None:
    """The name of the class of the optimizer in the file; None if there is none, or if it is unknown."""
    try:
        if not _is_open_file(filepath) and zipfile.is_zipfile(filepath):
            with zipfile.ZipFile(filepath) as archive:
                saved = json.loads(archive.read("config.json"))["compile_config"]["optimizer"]
        else:
            with contextlib.nullcontext(filepath) if _is_open_file(filepath) else h5py.File(filepath, "r") as file:
                saved = json.loads(file.attrs["training_config"])["optimizer_config"]
        return str(saved["class_name"]).rpartition(">")[2]  # Custom>RMSprop: the package it is registered for
    except (OSError, KeyError, TypeError, ValueError):
        return None


def _as_class(name: str, make: Callable[..., Any]) -> type:
    return type(name, (), {"from_config": classmethod(lambda cls, config: make(**config))})


def _load_with_factory(keras: Any, filepath: Any, objects: dict[str, Any]) -> Any:
    """Loads a model; `objects` may have a function `**config -> optimizer` for the name of the file's optimizer.

    Keras itself takes classes only, and no others for the names of its own optimizers.
    """
    name = _saved_optimizer(filepath) or ""
    key = next((key for key in (name, name.lower()) if callable(objects.get(key))), None)
    if key is None or isinstance(objects[key], type):
        return _load_once(keras, filepath, objects)
    make = objects[key]
    model = _load_once(keras, filepath, {**objects, key: _as_class(key, make)})
    optimizer: Any = getattr(model, "optimizer", None)
    if hasattr(optimizer, "build") and not is_distributed(optimizer):
        _replace_optimizer(model, make(**optimizer.get_config()), optimizer.variables)
    return model


def _load_once(keras: Any, filepath: Any, objects: dict[str, Any]) -> Any:
    is_open_file = _is_open_file(filepath)
    if not hasattr(keras, "ops") or not (is_open_file or str(filepath).endswith((".h5", ".hdf5"))):
        return keras.models.load_model(filepath, custom_objects=objects or None)
    with contextlib.nullcontext(filepath) if is_open_file else h5py.File(filepath, "r") as file:
        return _load_hdf5(file, objects)


def _load_hdf5(file: Any, objects: dict[str, Any]) -> Any:
    """Loads from an open file with the optimizer's state: Keras 3 takes paths only, and does not load the state."""
    legacy_h5_format = private.hdf5_format()
    model = legacy_h5_format.load_model_from_hdf5(file, custom_objects=objects or None)
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None or "optimizer_weights" not in file:
        return model
    fresh = type(optimizer).from_config(optimizer.get_config())
    _replace_optimizer(model, fresh, legacy_h5_format.load_optimizer_weights_from_hdf5_group(file))
    return model


def _replace_optimizer(model: Any, fresh: Any, values: Sequence[Any]) -> None:
    fresh.build(model.trainable_variables)
    if [tuple(variable.shape) for variable in fresh.variables] == [tuple(value.shape) for value in values]:
        for variable, value in zip(fresh.variables, values, strict=True):
            variable.assign(value)
    else:
        name = type(fresh).__name__
        warnings.warn(f"{model.name}: the state of its {name} is of another version, and was not loaded", stacklevel=5)
    model.optimizer = fresh


def _load(keras: Any, filepath: Any, custom_optimizers: Iterable[Any] | None, custom_objects: Any) -> Any:
    """The model of a path or an open h5py.File. ValueError for an optimizer of an unknown class.

    Files of other versions may name a class of Horovod: then Keras' optimizer of that name is used.
    """
    objects = {optimizer.__name__: optimizer for optimizer in custom_optimizers or ()}
    objects.update(custom_objects or {})
    try:
        return _load_with_factory(keras, filepath, objects)
    except (TypeError, ValueError) as error:
        if _WRAPPER not in str(error):
            raise
    try:
        return _load_with_factory(keras, filepath, {**_optimizers_of(keras), **objects})
    except (TypeError, ValueError) as error:
        if _WRAPPER not in str(error):
            raise
        raise ValueError(
            f"hvd.load_model: {filepath} has a distributed optimizer of a class that is not Keras' own: give the class "
            f"that was wrapped, custom_optimizers=[TheClass]. {error}"
        ) from error


def load_model(
    keras: Any, filepath: Any, custom_optimizers: Any, custom_objects: Any, options: Options, backend: Backend
) -> Any:
    """Loads a model and makes its optimizer a distributed one, which keeps its variables."""
    model = _load(keras, filepath, custom_optimizers, custom_objects)
    if getattr(model, "optimizer", None) is not None:
        distribute_in_place(model.optimizer, options, backend)
    return model
