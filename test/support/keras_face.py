"""A Keras, and the module of Horovod for it.

What the modules for the package keras and for tf.keras have in common is tested by modules of this folder, keras_*.py: the
tests of each of the two are those and its own. Their test modules import all names of such a module, and their conftests
have the fixture `face`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

DATA = (np.ones((4, 1), np.float32), np.ones((4, 1), np.float32))


@dataclass(frozen=True)
class Face:
    """A Keras, and the module of Horovod for it."""

    keras: Any
    hvd: Any

    def sgd(self, **options: Any) -> Any:
        return self.hvd.DistributedOptimizer(self.keras.optimizers.SGD(0.05), **options)

    def scaling(self, optimizer: Any) -> Any:
        return self.keras.mixed_precision.LossScaleOptimizer(optimizer)

    def model(self, optimizer: Any, kind: Any = None, loss: str = "mse") -> Any:
        """The loss of one that is saved has its long name, which Keras can read from an .h5 file."""
        layers = self.keras.layers
        made = (kind or self.keras.Sequential)([layers.Input((1,)), layers.Dense(1)])
        made.compile(optimizer, loss=loss)
        return made

    def callbacks(self) -> list[Any]:
        callbacks = self.hvd.callbacks
        return [
            callbacks.BroadcastGlobalVariablesCallback(0),
            callbacks.MetricAverageCallback(),
            callbacks.LearningRateScheduleCallback(0.1, 1.0),
            callbacks.LearningRateWarmupCallback(0.1),
        ]

    def usable(self) -> bool:
        """The session works: a small allreduce gives the right answer."""
        return bool(float(self.hvd.allreduce([1.0], average=None, op=self.hvd.Sum)[0]) == self.hvd.size())

    def warnings_of(self, model: Any) -> list[str]:
        """What fit() says of optimizers."""
        return warnings_of(lambda: model.fit(*DATA, verbose=0, callbacks=self.callbacks()))

    @property
    def is_keras_3(self) -> bool:
        return hasattr(self.keras, "ops")

    def same_everywhere(self, arrays: Any) -> bool:
        """Whether all ranks have the same, bit by bit."""
        mine = np.frombuffer(b"".join(np.asarray(array).tobytes() for array in arrays), np.uint8)
        everybodys = np.asarray(self.hvd.allgather(mine[None]))
        return bool(everybodys.shape == (self.hvd.size(), mine.size) and (everybodys == mine).all())


def optimizer_variables(model: Any) -> list[Any]:
    variables = model.optimizer.variables
    return list(variables() if callable(variables) else variables)


def flat(values: Any) -> Any:
    return np.concatenate([np.ravel(np.asarray(value)) for value in values])


def warnings_of(run: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    return [str(warning.message) for warning in caught if "hvd.DistributedOptimizer" in str(warning.message)]
