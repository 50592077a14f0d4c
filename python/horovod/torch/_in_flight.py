"""Checks that gradients do not change while their reduction is running, and the errors for that."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import torch

from horovod import _env
from horovod.torch._gradient import Gradient

_RECIPE = (
    "Call optimizer.synchronize() before, and step() within optimizer.skip_synchronize(), or pass "
    "synchronize_in_backward=True to DistributedOptimizer. HOROVOD_ALLOW_CHANGED_GRADIENTS=1 makes this a warning."
)
CHANGED = (
    "the gradient of {name} was changed after backward() and before its reduction was finished: each rank would train "
    "another model. "
)
SCALER = (
    "the step() of a gradient scaler looks at gradients whose reduction is not finished: ranks would skip different "
    "steps. "
)


def first_changed(gradients: Iterable[Gradient]) -> str | None:
    """The name of the first gradient that was written to or replaced while it was in flight; None if there is none."""
    for gradient in gradients:
        target = gradient.target
        if target is None or gradient.absent:
            continue
        if gradient.parameter.grad is not target or target._version != gradient.version:
            return gradient.name
    return None


class Reduced:
    """Gradients that backward() itself has reduced. Until the step, no other backward() may add local ones to them.

    A program that sets them to None instead of stepping discards them. They are not kept alive: a new gradient may get
    the same id, but then its version is lower.
    """

    __slots__ = ("_grads",)

    def __init__(self) -> None:
        self._grads: dict[int, tuple[int, int]] = {}

    def note(self, gradients: Iterable[Gradient]) -> None:
        grads = ((id(gradient.parameter), gradient.parameter.grad) for gradient in gradients)
        self._grads = {key: (id(grad), grad._version) for key, grad in grads if grad is not None}

    def clear(self) -> None:
        self._grads = {}

    def was_changed(self, parameter: torch.Tensor) -> bool:
        """Whether its gradient is still the reduced one, and was written to, for example by the running backward()."""
        noted, grad = self._grads.get(id(parameter)), parameter.grad
        return noted is not None and grad is not None and id(grad) == noted[0] and grad._version > noted[1]


def raise_or_warn(what: str) -> None:
    """RuntimeError; with HOROVOD_ALLOW_CHANGED_GRADIENTS a warning."""
    if not _env.is_true("HOROVOD_ALLOW_CHANGED_GRADIENTS"):
        raise RuntimeError(what + _RECIPE)
    warnings.warn(what + _RECIPE, stacklevel=5)
