"""TorchEstimator for modules of Lightning, and the TorchModel that it returns."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cloudpickle

from horovod.spark.common._packages import package_of
from horovod.spark.common._training import DataSet
from horovod.spark.common.backend import Backend
from horovod.spark.common.params import Parameter
from horovod.spark.lightning._plain import to_lightning_module
from horovod.spark.lightning._training import LightningTraining, train
from horovod.spark.torch import _objects
from horovod.spark.torch.estimator import TorchEstimator as _TorchEstimator
from horovod.spark.torch.estimator import TorchModel as _TorchModel

__all__ = ["MIN_PL_VERSION", "TorchEstimator", "TorchModel"]

MIN_PL_VERSION = "2.0.0"
_PLAIN = "model."  # before the names of a plain module's parameters
_PACKAGES = ("pytorch_lightning", "lightning.pytorch")


def _package_of(model: Any) -> str | None:
    """The package of which `model` is a LightningModule."""
    return package_of(model, "LightningModule", _PACKAGES)


def _installed() -> str:
    """The package that is there. RuntimeError: none, or one that is too old."""
    name = next((name for name in _PACKAGES if importlib.util.find_spec(name.partition(".")[0])), None)
    if name is None:
        raise RuntimeError("horovod.spark.lightning needs Lightning: `pip install pytorch-lightning`")
    version = importlib.import_module(name).__version__
    if int(version.partition(".")[0]) < 2:
        raise RuntimeError(f"horovod.spark.lightning needs Lightning {MIN_PL_VERSION} or newer, {name} is {version}")
    return name


class TorchEstimator(_TorchEstimator):
    """Trains a LightningModule, or a torch.nn.Module with an optimizer and a loss, by Lightning's Trainer on the rows
    of a DataFrame. Parameters: docs/api/spark.md.

    A LightningModule gets batches as dictionaries of tensors by column. fit() returns the best model that a
    ModelCheckpoint among the callbacks has written, else the last.
    """

    FRAMEWORK = "lightning"
    PARAMETERS: tuple[Parameter, ...] = (
        Parameter("num_gpus", "GPUs of a rank: 0 or 1"),
        Parameter("logger", "Lightning's logger", False),
        Parameter("log_every_n_steps", "steps between what loggers get", 50),
        Parameter("loader_num_epochs", "accepted, without effect: data has no end"),
        Parameter("terminate_on_nan", "end when a loss is not finite", False),
        Parameter("profiler", "Lightning's profiler"),
        Parameter("trainer_args", "more arguments of the Trainer", None, dict),
        Parameter("debug_data_loader", "print what the loading threads do", False),
        Parameter("train_async_data_loader_queue_size", "batches of training made ahead; default: 0"),
        Parameter("val_async_data_loader_queue_size", "batches of validation made ahead; default: 0"),
    )

    def _check_objects(self) -> None:
        who = type(self).__name__
        _installed()
        if _package_of(self.value("model")) is None:
            super()._check_objects()
        else:
            for name in ("optimizer", "loss", "loss_weights", "loss_constructors", "metrics"):
                if self.value(name):
                    raise ValueError(f"{who}: {name} is given, but a LightningModule has its own")
        if self.value("train_minibatch_fn"):
            raise ValueError(
                f"{who}: train_minibatch_fn is of horovod.spark.torch; a LightningModule has training_step()"
            )
        if self.value("num_gpus") not in (None, 0, 1):
            raise ValueError(f"{who}: num_gpus={self.value('num_gpus')}, expected 0 or 1: a rank has one GPU at most")

    def _maker(self) -> Callable[[Any], tuple[Any, list[Any]]]:
        """A function that travels: it makes the module and the callbacks, of the package that it gets."""
        model, callbacks = self.value("model"), self.value("callbacks")
        if _package_of(model) is not None:
            return lambda _: (model, callbacks)
        value = self.value
        arguments = (
            *(value("optimizer"), self._loss(), self._metrics(), value("feature_cols"), value("label_cols")),
            value("sample_weight_col"),
        )
        return lambda lightning: (to_lightning_module(lightning, model, *arguments), callbacks)

    def _ahead(self, part: str) -> int:
        return int(self.value(f"{part}_async_data_loader_queue_size") or 0)

    def _trainer_arguments(self) -> dict[str, Any]:
        return {
            "logger": self.value("logger"),
            "log_every_n_steps": self.value("log_every_n_steps"),
            "profiler": self.value("profiler"),
            **(self.value("trainer_args") or {}),
        }

    def _train(self, backend: Backend, data: DataSet) -> TorchModel:
        training = self._training(data, backend.num_processes())
        package = _package_of(self.value("model"))
        told = LightningTraining(
            training=replace(training, use_gpu=training.use_gpu and self.value("num_gpus") != 0),
            package=package or _installed(),
            content=cloudpickle.dumps(self._maker()),
            input_shapes=self.value("input_shapes"),
            label_shapes=self.value("label_shapes"),
            trainer=self._trainer_arguments(),
            terminate_on_nan=self.value("terminate_on_nan"),
            queue_sizes=(self._ahead("train"), self._ahead("val")),
            debug_data_loader=self.value("debug_data_loader"),
            checkpoint=self._checkpoint_of(training),
        )
        history, content = backend.run(train, args=(told,))[0]
        model, _ = _objects.unpacked(_objects.packed(self.value("model"), None))
        state = _objects.state_of(content)["model"]
        own = (
            state
            if package
            else {name[len(_PLAIN) :]: value for name, value in state.items() if name.startswith(_PLAIN)}
        )
        model.load_state_dict(own)
        return TorchModel(**self._of_model(training, history, model))


class TorchModel(_TorchModel):
    """A trained module, by getModel(). transform(df) adds predictions: what its forward() returns for the features.

    getHistory() has for each epoch {"epoch", and what the module has logged}.
    """
