"""Models of Keras as bytes, and what of Keras they belong to. Nothing here imports Keras before it is needed."""

from __future__ import annotations

import importlib
import math
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np

from horovod import _env
from horovod.spark.common._packages import package_of
from horovod.spark.common._prediction import LazyPredictor


def keras_of(model: Any) -> str | None:
    """ "keras" or "tf_keras", that of which `model` is a Model; None if it is none."""
    return package_of(model, "Model", ("keras", "tf_keras"))


@dataclass(frozen=True)
class Keras:
    """One of the packages, and on which backend it computes.

    Args:
        package: "keras" or "tf_keras".
        backend: Keras 3's; None: Keras 2.
    """

    package: str
    backend: str | None

    @staticmethod
    def here(package: str) -> Keras:
        keras = importlib.import_module(package)
        is_2 = keras.__version__.startswith("2.")
        return Keras(package, None if is_2 else keras.config.backend())

    @property
    def env(self) -> dict[str, str | None]:
        """Variables of a process that is to have the same Keras."""
        if self.backend is not None:
            return {"KERAS_BACKEND": self.backend}
        return {"TF_USE_LEGACY_KERAS": "1"} if self.package == "tf_keras" else {}

    def load(self) -> Any:
        """The package, in a process that has not imported it yet, or has imported the same."""
        if self.package not in sys.modules:
            _env.apply(self.env)
        return importlib.import_module(self.package)

    def load_hvd(self) -> Any:
        """The module of Horovod for it."""
        name = "horovod.keras" if self.package == "keras" else "horovod.tensorflow.keras"
        return importlib.import_module(name)


def model_bytes(model: Any) -> bytes:
    """The model as a .keras archive: its layers and weights, and its optimizer if it is compiled."""
    with tempfile.TemporaryDirectory(prefix="hvd-keras-") as folder:
        path = os.path.join(folder, "model.keras")
        model.save(path)
        with open(path, "rb") as file:
            return file.read()


def model_from_bytes(content: bytes, custom_objects: Mapping[str, Any] | None, package: str = "keras") -> Any:
    """The model of a .keras archive, not compiled. `custom_objects`: classes and functions that it names."""
    keras = importlib.import_module(package)
    with as_file(content) as path:
        return keras.models.load_model(path, custom_objects=dict(custom_objects or {}), compile=False)


class as_file:  # noqa: N801 -- a context manager
    """The path of a temporary file that has this content, as Keras reads archives."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._folder = tempfile.TemporaryDirectory(prefix="hvd-keras-")

    def __enter__(self) -> str:
        path = os.path.join(self._folder.name, "model.keras")
        with open(path, "wb") as file:
            file.write(self._content)
        return path

    def __exit__(self, *error: Any) -> None:
        self._folder.cleanup()


def inputs_of(model: Any, arrays: Sequence[np.ndarray]) -> Any:
    """The arrays as inputs of the model: in their shapes and types; a tuple if there are several.

    ValueError: An array has other elements than its input.
    """
    made = [_fitted(array, tensor) for array, tensor in zip(arrays, model.inputs, strict=True)]
    return made[0] if len(made) == 1 else tuple(made)


def _fitted(array: np.ndarray, tensor: Any) -> np.ndarray:
    shape = tuple(tensor.shape[1:])
    if None not in shape:
        given = array[0].size
        if given != math.prod(shape):
            raise ValueError(f"a row has {given} elements, expected {math.prod(shape)} for an input of shape {shape}")
        array = array.reshape(len(array), *shape)
    kind = getattr(tensor.dtype, "name", tensor.dtype)
    return array.astype(kind) if isinstance(kind, str) and kind not in ("string", "bfloat16") else array


def labels_of(model: Any, arrays: Sequence[np.ndarray], shapes: Sequence[Sequence[int]] | None) -> Any:
    """The arrays as labels: in `shapes`, else in those of the model's outputs that have as many elements."""
    made = []
    for at, (array, output) in enumerate(zip(arrays, model.outputs, strict=True)):
        shape: Sequence[Any] = tuple(shapes[at] if shapes else output.shape)[1:]
        fits = bool(shapes) or (None not in shape and array[0].size == math.prod(shape))
        made.append(array.reshape(len(array), *shape) if fits else array)
    return made[0] if len(made) == 1 else tuple(made)


@dataclass
class KerasPredictor(LazyPredictor):
    """Predictions of a model of Keras. `custom` is a pickle of its custom objects."""

    content: bytes
    custom: bytes
    keras: Keras

    def load(self) -> Any:
        self.keras.load()
        return model_from_bytes(self.content, cloudpickle.loads(self.custom), self.keras.package)

    def predict(self, model: Any, arrays: list[np.ndarray]) -> list[np.ndarray]:
        made = model.predict_on_batch(inputs_of(model, arrays))
        return [np.asarray(one) for one in (made if isinstance(made, (list, tuple)) else [made])]
