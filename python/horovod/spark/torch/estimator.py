"""TorchEstimator, and the TorchModel that it returns."""

from __future__ import annotations

import math
from typing import Any

import torch

from horovod.spark.common._columns import Columns
from horovod.spark.common._training import DataSet, Training
from horovod.spark.common.backend import Backend
from horovod.spark.common.estimator import HorovodEstimator, HorovodModel
from horovod.spark.common.params import Parameter
from horovod.spark.torch import _objects
from horovod.spark.torch._losses import Loss
from horovod.spark.torch._training import TorchTraining, train

__all__ = ["TorchEstimator", "TorchModel"]

_INPUT_SHAPES = Parameter("input_shapes", "the shape of each feature, -1 for the batch", None, list)
_CONSTRUCTORS = Parameter("loss_constructors", "functions, each of which makes the loss of an output")


class TorchEstimator(HorovodEstimator):
    """Trains a torch.nn.Module on the rows of a DataFrame. Parameters: docs/api/spark.md.

    The checkpoint in the store, and the model that fit() returns, are those of the epoch with the least loss of the
    validation, without validation of the last one.
    """

    FRAMEWORK = "pytorch"
    PARAMETERS: tuple[Parameter, ...] = (
        _INPUT_SHAPES,
        _CONSTRUCTORS,
        Parameter("train_minibatch_fn", "what makes a step; see horovod.spark.torch._training.minibatch"),
    )

    def _check(self) -> None:
        super()._check()
        who = type(self).__name__
        if not isinstance(self.value("model"), torch.nn.Module):
            raise ValueError(f"{who}: model is a {type(self.value('model')).__name__}, expected a torch.nn.Module")
        shapes, features = self.value("input_shapes"), self.value("feature_cols")
        if shapes and len(shapes) != len(features):
            raise ValueError(f"{who}: {len(shapes)} input_shapes for {len(features)} feature_cols {features}")
        self._check_objects()

    def _check_objects(self) -> None:
        """ValueError for a wrong optimizer, loss, or what this estimator has no use for."""
        who = type(self).__name__
        if not isinstance(self.value("optimizer"), torch.optim.Optimizer):
            raise ValueError(f"{who}: optimizer is {self.value('optimizer')!r}, expected one of torch.optim")
        _objects.check_state(self.value("model"), self.value("optimizer"))
        self._loss()
        self._metrics()
        if self.value("callbacks") and self.FRAMEWORK == "pytorch":
            raise ValueError(f"{who}: callbacks are of Keras and Lightning; train_minibatch_fn is called in each step")

    def _check_columns(self, columns: Columns) -> None:
        for name, shape in zip(self.value("feature_cols"), self.value("input_shapes") or (), strict=False):
            one = math.prod(shape[1:])
            if shape[0] == -1 and one > 0 and columns[name].shape != one:
                raise ValueError(
                    f"column {name!r} has {columns[name].shape} elements in each value, expected {one} for the shape "
                    f"{shape}"
                )

    def _loss(self) -> Loss:
        who, labels = type(self).__name__, self.value("label_cols")
        given = {name: self.value(name) for name in ("loss", "loss_constructors")}
        if all(given.values()):
            raise ValueError(f"{who}: loss and loss_constructors are both given, expected one of them")
        if not any(given.values()):
            raise ValueError(f"{who}: no loss and no loss_constructors, expected one of them")
        lists = {name: tuple(_listed(value)) for name, value in given.items() if value}
        for name, value in lists.items():
            if len(value) != len(labels):
                raise ValueError(f"{who}: {len(value)} {name} for {len(labels)} label_cols {labels}")
        weights = self.value("loss_weights") or [1.0 / len(labels)] * len(labels)
        return Loss(lists.get("loss"), lists.get("loss_constructors"), tuple(float(weight) for weight in weights))

    def _metrics(self) -> list[list[Any]]:
        metrics, labels = self.value("metrics"), self.value("label_cols")
        if isinstance(metrics, dict) or isinstance(self.value("loss_weights"), dict):
            raise ValueError(f"{type(self).__name__}: metrics and loss_weights are lists, got a dictionary")
        if not any(isinstance(metric, (list, tuple)) for metric in metrics):
            return [list(metrics)] * len(labels)
        if len(metrics) != len(labels):
            who = type(self).__name__
            raise ValueError(f"{who}: {len(metrics)} lists of metrics for {len(labels)} label_cols {labels}")
        return [_listed(metric) for metric in metrics]

    def _train(self, backend: Backend, data: DataSet) -> TorchModel:
        training = self._training(data, backend.num_processes())
        told = TorchTraining(
            training=training,
            content=_objects.packed(self.value("model"), self.value("optimizer")),
            input_shapes=self.value("input_shapes"),
            label_shapes=self.value("label_shapes"),
            loss=self._loss(),
            metrics=self._metrics(),
            minibatch=self.value("train_minibatch_fn"),
            checkpoint=self._checkpoint_of(training),
        )
        history, content = backend.run(train, args=(told,))[0]
        model, optimizer = _objects.unpacked(told.content)
        state = _objects.state_of(content)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        return TorchModel(optimizer=optimizer, **self._of_model(training, history, model))

    def _of_model(self, training: Training, history: Any, model: Any) -> dict[str, Any]:
        """All but the optimizer of a TorchModel."""
        own = ("input_shapes", "loss", "loss_constructors", "categorical_cols")
        return {**super()._of_model(training, history, model), **{name: self.value(name) for name in own}}


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


class TorchModel(HorovodModel):
    """A trained torch.nn.Module, by getModel(), with its optimizer, by getOptimizer(). transform(df) adds predictions.

    getHistory() has for each epoch {"epoch", "train", "validation"}, of the last two {"loss", "all_metrics"}.
    """

    PARAMETERS: tuple[Parameter, ...] = (
        _INPUT_SHAPES,
        _CONSTRUCTORS,
        Parameter("optimizer", "the optimizer after the training, with the learning rate of one rank"),
        Parameter("loss", "the loss"),
        Parameter("categorical_cols", "features that keep their integer type", None, list),
    )

    def _predictor(self) -> _objects.TorchPredictor:
        features, whole = self.value("feature_columns"), self.value("categorical_cols") or ()
        model = self.value("model")
        return _objects.TorchPredictor(
            _objects.packed(model, None), self.value("input_shapes"), tuple(name in whole for name in features)
        )
