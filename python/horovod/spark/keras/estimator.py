"""KerasEstimator, and the KerasModel that it returns."""

from __future__ import annotations

import importlib
import math
from typing import Any

import cloudpickle

from horovod.spark.common._columns import Columns
from horovod.spark.common._training import DataSet
from horovod.spark.common.backend import Backend
from horovod.spark.common.estimator import HorovodEstimator, HorovodModel
from horovod.spark.common.params import Parameter
from horovod.spark.keras._models import Keras, KerasPredictor, keras_of, model_bytes, model_from_bytes
from horovod.spark.keras._training import KerasTraining, Parts, train

__all__ = ["KerasEstimator", "KerasModel"]

_CUSTOM = Parameter("custom_objects", "classes and functions of the model, by name", None, dict)


class _KeepsKerasModels:
    """Writes models as Keras does, not as pickles of their objects."""

    value: Any

    def _encoded(self, name: str, value: Any) -> Any:
        package = keras_of(value) if name == "model" else None
        if package is None:
            return value
        return package, model_bytes(value), cloudpickle.dumps(self.value("custom_objects"))

    def _decoded(self, name: str, value: Any) -> Any:
        if name != "model" or not isinstance(value, tuple):
            return value
        package, content, custom = value
        return model_from_bytes(content, cloudpickle.loads(custom), package)


class KerasEstimator(_KeepsKerasModels, HorovodEstimator):
    """Trains a Keras model on the rows of a DataFrame. Parameters: docs/api/spark.md.

    The checkpoint in the store is that of the last epoch, or what `checkpoint_callback` has kept; fit() returns the
    model as it is at the end, or what that callback has kept.
    """

    FRAMEWORK = "keras"
    PARAMETERS: tuple[Parameter, ...] = (
        _CUSTOM,
        Parameter("checkpoint_callback", "a ModelCheckpoint; its filepath is set"),
        Parameter("backend_env", "variables of ranks", None, dict),
    )

    def _check(self) -> None:
        super()._check()
        who, model = type(self).__name__, self.value("model")
        package = keras_of(model)
        if package is None:
            raise ValueError(f"{who}: model is a {type(model).__name__}, expected a keras.Model")
        for name in ("optimizer", "loss"):
            if not self.value(name):
                raise ValueError(f"{who}: no {name}, expected one")
        for name in ("input", "output"):
            if isinstance(getattr(model, name, None), dict):
                raise ValueError(f"{who}: the model's {name}s are a dictionary, expected a list of them")
        for name, tensors, columns in (
            ("inputs", getattr(model, "inputs", None), self.value("feature_cols")),
            ("outputs", getattr(model, "outputs", None), self.value("label_cols")),
        ):
            if not tensors:
                raise ValueError(f"{who}: the model has no {name} yet, expected one that is built: a functional model")
            if len(tensors) != len(columns):
                raise ValueError(f"{who}: the model has {len(tensors)} {name} for {len(columns)} columns {columns}")
        self._parts(importlib.import_module(package))
        if self.value("backward_passes_per_step") > 1 and Keras.here(package).backend is None:
            raise ValueError(f"{who}: backward_passes_per_step needs Keras 3")

    def _check_columns(self, columns: Columns) -> None:
        for name, tensor in zip(self.value("feature_cols"), self.value("model").inputs, strict=True):
            shape = tuple(tensor.shape[1:])
            if None not in shape and columns[name].shape != math.prod(shape):
                raise ValueError(
                    f"column {name!r} has {columns[name].shape} elements in each value, expected "
                    f"{math.prod(shape)} for the model's input of shape {shape}"
                )

    def _parts(self, keras: Any) -> Parts:
        optimizer = self.value("optimizer")
        if isinstance(optimizer, str):
            optimizer = keras.optimizers.get(optimizer)
        serialized = keras.optimizers.serialize(optimizer)
        rate = serialized["config"].get("learning_rate")
        if isinstance(rate, dict):
            raise ValueError(
                f"{type(self).__name__}: the optimizer's learning rate is a {rate.get('class_name')}, expected a "
                "number, which is multiplied by the number of ranks; LearningRateScheduleCallback changes it later"
            )
        if self.value("backward_passes_per_step") > 1:
            serialized["config"]["gradient_accumulation_steps"] = self.value("backward_passes_per_step")
        return Parts(
            optimizer=serialized,
            loss=self.value("loss"),
            loss_weights=self.value("loss_weights"),
            metrics=self.value("metrics"),
            custom_objects=dict(self.value("custom_objects") or {}),
            callbacks=self.value("callbacks"),
            checkpoint_callback=self.value("checkpoint_callback"),
        )

    def _train(self, backend: Backend, data: DataSet) -> KerasModel:
        training = self._training(data, backend.num_processes())
        keras_here = Keras.here(str(keras_of(self.value("model"))))
        keras = importlib.import_module(keras_here.package)
        parts = self._parts(keras)
        told = KerasTraining(
            training=training,
            keras=keras_here,
            content=model_bytes(self.value("model")),
            parts=cloudpickle.dumps(parts),
            label_shapes=self.value("label_shapes"),
            prefetch=self.value("tensorflow_dataset_prefetch_buffer_size"),
            checkpoint=self._checkpoint_of(training),
        )
        env = {**keras_here.env, **(self.value("backend_env") or {})}
        history, content, rate = backend.run(train, args=(told,), env=env)[0]
        model = model_from_bytes(content, parts.custom_objects, keras_here.package)
        copied: Parts = cloudpickle.loads(told.parts)
        optimizer = keras.optimizers.deserialize(copied.optimizer, custom_objects=copied.custom_objects)
        optimizer.learning_rate = rate
        copied.compile(model, optimizer)
        return KerasModel(
            custom_objects=self.value("custom_objects"), **self._of_model(training, history, model)
        )


class KerasModel(_KeepsKerasModels, HorovodModel):
    """A trained model of Keras, by getModel(). transform(df) adds predictions. getHistory() is that of fit()."""

    PARAMETERS: tuple[Parameter, ...] = (_CUSTOM,)

    def _predictor(self) -> KerasPredictor:
        model = self.value("model")
        custom = cloudpickle.dumps(self.value("custom_objects") or {})
        return KerasPredictor(model_bytes(model), custom, Keras.here(str(keras_of(model))))
