"""Variables whose gradients stay on this rank, and how gradients are divided between them and the rest."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import tensorflow as tf

from horovod.common.process_sets import ProcessSet
from horovod.tensorflow.util import variable_key


def local_layer_variables(local_layers: Any, caller: str) -> list[Any]:
    """The trainable weights of a Keras layer or of several. ValueError for anything else."""
    if local_layers is None:
        return []
    layer_class = tf.keras.layers.Layer
    layers = [local_layers] if isinstance(local_layers, layer_class) else local_layers
    if not isinstance(layers, Collection) or not all(isinstance(layer, layer_class) for layer in layers):
        raise ValueError(f"{caller}: local_layers must be a Keras layer or a collection of them, got {local_layers!r}")
    return [variable for layer in layers for variable in layer.trainable_weights]


def scaled(grad: Any, size: int) -> Any:
    """A local gradient as large as its share of an average; None stays None."""
    if grad is None or size == 1:
        return grad
    if isinstance(grad, tf.IndexedSlices):
        return tf.IndexedSlices(grad.values / size, grad.indices, grad.dense_shape)
    return grad / size


class LocalVariables:
    """Which variables are local, and what becomes of their gradients."""

    def __init__(self, process_set: ProcessSet, scale_local_gradients: bool) -> None:
        self._keys: dict[int, Any] = {}  # with the variable, so that no other gets its id
        self.process_set = process_set
        self._scale = scale_local_gradients

    def register(self, variable: Any) -> None:
        self._keys[variable_key(variable)] = variable

    @property
    def any(self) -> bool:
        """Whether any variable is local; the same on all ranks of a correct program."""
        return bool(self._keys)

    def __contains__(self, variable: Any) -> bool:
        return variable_key(variable) in self._keys

    def finish(self, grad: Any) -> Any:
        size = self.process_set.size() or 1
        return scaled(grad, size) if self._scale and self.process_set.included() else grad

    def reduce(
        self, reduce: Callable[..., list[Any]], grads: Sequence[Any], variables: Sequence[Any], **options: Any
    ) -> list[Any]:
        """The gradients of local variables finished, the others reduced, in their order."""
        if not self._keys:
            return reduce(grads, variables, **options)
        shared = [i for i, variable in enumerate(variables) if variable not in self]
        reduced = reduce([grads[i] for i in shared], [variables[i] for i in shared], **options)
        result = [self.finish(grad) if of in self else grad for grad, of in zip(grads, variables, strict=True)]
        for i, grad in zip(shared, reduced, strict=True):
            result[i] = grad
        return result
