"""The loss of a model with one output or several, with or without weights of rows."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

One = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Loss:
    """What ranks get.

    Args:
        losses: One for each output: modules or functions of an output and a label. None: `constructors` make them.
        constructors: Functions without arguments, each of which makes one.
        weights: One number for each output.
    """

    losses: tuple[One, ...] | None
    constructors: tuple[Callable[[], One], ...] | None
    weights: tuple[float, ...]

    def made(self, device: torch.device | None = None) -> LossOfOutputs:
        """The loss as it is computed on a rank; modules are moved to `device`."""
        losses = self.losses if self.losses is not None else tuple(make() for make in self.constructors or ())
        return LossOfOutputs(tuple(moved(losses, device)), self.weights)


def moved(functions: Iterable[Any], device: torch.device | None) -> Iterator[Any]:
    """The functions; those that are modules on `device`."""
    for function in functions:
        yield function.to(device) if isinstance(function, torch.nn.Module) and device is not None else function


class LossOfOutputs:
    """The sum of the outputs' losses times their weights; each is a mean over rows, by the weights of rows if there
    are some."""

    def __init__(self, losses: tuple[One, ...], weights: tuple[float, ...]) -> None:
        self.losses = losses
        self._weights = weights

    def __call__(
        self, outputs: list[torch.Tensor], labels: list[torch.Tensor], sample_weights: torch.Tensor | None = None
    ) -> torch.Tensor:
        total: Any = 0.0
        for loss, weight, output, label in zip(self.losses, self._weights, outputs, labels, strict=True):
            value = loss(output, label) if sample_weights is None else _weighted(loss, output, label, sample_weights)
            total = total + weight * value
        made: torch.Tensor = total
        return made


def _weighted(loss: One, output: torch.Tensor, label: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    each = _each_row(loss)(output, label)
    weights = weights.reshape(-1)
    if each.dim() == 0 or each.shape[0] != len(weights):
        raise ValueError(
            f"sample_weight_col needs a loss for each of {len(weights)} rows, got shape {tuple(each.shape)}"
        )
    return (each.reshape(len(weights), -1).mean(dim=1) * weights).mean()


def _each_row(loss: Any) -> One:
    """The loss without its reduction. TypeError: it has none to leave out."""
    if isinstance(loss, torch.nn.Module) and hasattr(loss, "reduction"):
        single: Any = copy.copy(loss)
        single.reduction = "none"
        made: One = single
        return made
    try:
        parameters = inspect.signature(loss).parameters.values()
        takes = any(p.name == "reduction" or p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
    except (TypeError, ValueError):
        takes = True
    if not takes:
        raise TypeError(f"sample_weight_col: the loss {loss!r} takes no argument `reduction`, as those of torch do")
    return lambda output, label: loss(output, label, reduction="none")
