"""Local variables: those whose gradients are not reduced, but stay on this rank."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from horovod.common.process_sets import ProcessSet

__all__ = ["LocalVariables", "local_layer_variables"]


def _is_layer(thing: Any) -> bool:
    """Whether it is a layer of any Keras: keras and tf.keras are two packages if TF_USE_LEGACY_KERAS is set."""
    return hasattr(thing, "trainable_weights") and hasattr(thing, "built")


def local_layer_variables(local_layers: Any, caller: str) -> list[Any]:
    """The trainable weights of a Keras layer or of several. ValueError for anything else.

    A layer that is not built has none yet: the list has the layer itself. Its weights are looked up at the first
    gradients.
    """
    if local_layers is None:
        return []
    layers = [local_layers] if _is_layer(local_layers) else local_layers
    if not isinstance(layers, Collection) or not all(_is_layer(layer) for layer in layers):
        raise ValueError(f"{caller}: local_layers must be a Keras layer or a collection of them, got {local_layers!r}")
    return [source for layer in layers for source in (layer.trainable_weights if layer.built else [layer])]


class LocalVariables:
    """Which variables are local, and how their gradients are scaled."""

    def __init__(self, process_set: ProcessSet, scale_local_gradients: bool) -> None:
        self._keys: dict[int, Any] = {}  # key -> variable, which is kept alive so that no other gets its id
        self._unbuilt: list[Any] = []  # layers that had no weights when they were registered
        self.process_set = process_set
        self._scale = scale_local_gradients

    @staticmethod
    def key(variable: Any) -> int:
        """Identifies a variable."""
        return id(variable)

    @staticmethod
    def scaled(grad: Any, size: int) -> Any:
        """A local gradient divided by the number of ranks, like its share of an average; None stays None."""
        return grad if grad is None or size == 1 else grad / size

    def register(self, source: Any) -> None:
        """Makes a variable local, or all variables of a layer that is not built yet."""
        if _is_layer(source):
            self._unbuilt.append(source)
        else:
            self._keys[self.key(source)] = source

    def _all(self) -> dict[int, Any]:
        for layer in [layer for layer in self._unbuilt if layer.built]:
            self._unbuilt.remove(layer)
            for variable in layer.trainable_weights:
                self.register(variable)
        return self._keys

    @property
    def any(self) -> bool:
        """Whether any variable is local; the same on all ranks of a correct program."""
        return bool(self._all())

    def __contains__(self, variable: Any) -> bool:
        return self.key(variable) in self._all()

    def finish(self, grad: Any) -> Any:
        """The gradient of a local variable as it is applied."""
        size = self.process_set.size() or 1
        return self.scaled(grad, size) if self._scale and self.process_set.included() else grad

    def reduce(
        self, reduce: Callable[..., list[Any]], grads: Sequence[Any], variables: Sequence[Any], **options: Any
    ) -> list[Any]:
        """All gradients in their order: those of local variables scaled, the others reduced by `reduce`."""
        if not self.any:
            return reduce(grads, variables, **options)
        shared = [i for i, variable in enumerate(variables) if variable not in self]
        reduced = reduce([grads[i] for i in shared], [variables[i] for i in shared], **options)
        pairs = zip(grads, variables, strict=True)
        result = [self.finish(grad) if variable in self else grad for grad, variable in pairs]
        for i, grad in zip(shared, reduced, strict=True):
            result[i] = grad
        return result
