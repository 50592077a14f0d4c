"""What a distributed optimizer does with its gradients: which go to the other ranks, which stay, which go together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from keras import ops

from horovod import _env
from horovod.common.util import split_list
from horovod.keras._backends.options import Options

__all__ = ["Gradients", "Reduce"]

Groups = tuple[tuple[int, ...], ...]  # positions that are reduced together; () where each goes alone

# reduce(tensors, places, groups): the reduced tensors. `places` say which gradients of the optimizer they are.
Reduce = Callable[[list[Any], list[int], Groups], list[Any]]


def _groups_of(groups: Any, variables: Sequence[Any]) -> Groups:
    """Which of the variables are reduced together. Those that no group names are reduced alone."""
    if groups is None:
        return ()
    if isinstance(groups, int):
        return tuple(tuple(part) for part in split_list(range(len(variables)), groups) if part)
    place = {id(variable): position for position, variable in enumerate(variables)}
    planned = [tuple(place[id(one)] for one in group if id(one) in place) for group in groups]
    used = {position for group in planned for position in group}
    return tuple([group for group in planned if group] + [(i,) for i in range(len(variables)) if i not in used])


def _elastic() -> bool:
    return (_env.get("HOROVOD_ELASTIC") or "").lower() in ("1", "true", "yes", "on")


class Gradients:
    """Belongs to one optimizer. `reduce` is the backend's."""

    def __init__(self, options: Options, reduce: Reduce) -> None:
        self._options = options
        self._reduce = reduce
        self._local: dict[int, Any] = {}  # with the variable, so that no other gets its id

    def register_local(self, variable: Any) -> None:
        """The gradient of `variable` stays on this rank."""
        self._local[id(variable)] = variable

    def _several_ranks(self) -> bool:
        """Whether there is anybody to reduce with."""
        process_set = self._options.process_set
        return bool(process_set.included()) and ((process_set.size() or 1) > 1 or _elastic())

    def reduced(self, grads: Sequence[Any], variables: Sequence[Any], shares_overflow: bool) -> list[Any]:
        """The gradients of all ranks; local ones are finished, None stays None.

        `shares_overflow`: a local gradient that is not finite on one rank becomes NaN on all, for an optimizer that
        skips such steps.
        """
        if not self._several_ranks():
            return list(grads)
        result = list(grads)
        local = [i for i, of in enumerate(variables) if id(of) in self._local and grads[i] is not None]
        shared = [i for i, grad in enumerate(grads) if grad is not None and i not in local]
        groups = _groups_of(self._options.groups, [variables[i] for i in shared])
        tensors, places = [grads[i] for i in shared], list(shared)
        if shares_overflow and self._local:
            if groups:
                groups = (*groups, (len(tensors),))
            tensors.append(self._overflow([grads[i] for i in local]))
            places.append(len(grads))
        reduced = self._reduce(tensors, places, groups) if tensors else []
        spoiled = reduced.pop() > 0 if len(reduced) > len(shared) else None
        for i, grad in zip(shared, reduced, strict=True):
            result[i] = grad
        for i in local:
            result[i] = self._finished(grads[i], spoiled)
        return result

    def _overflow(self, grads: list[Any]) -> Any:
        """1 when a gradient is not finite, else 0."""
        bad = [ops.any(ops.logical_not(ops.isfinite(grad))) for grad in grads]
        return ops.cast(ops.any(ops.stack(bad)), "float32") if bad else ops.zeros((), "float32")

    def _finished(self, grad: Any, spoiled: Any) -> Any:
        """A local gradient, as large as its share of an average."""
        if self._options.scale_local_gradients:
            grad = grad / (self._options.process_set.size() or 1)
        return grad if spoiled is None else ops.where(spoiled, ops.full_like(grad, float("nan")), grad)
