"""Adding up the gradients of several steps on this rank before they are reduced."""

from __future__ import annotations

from typing import Any

__all__ = ["LocalPasses"]


class LocalPasses:
    """The sums of one optimizer, for backends whose steps run as Python. `counter`: calls since the last reduction."""

    def __init__(self, backward_passes_per_step: int, average_aggregated_gradients: bool) -> None:
        self.backward_passes_per_step = backward_passes_per_step
        self.average_aggregated_gradients = average_aggregated_gradients
        self.counter = 0
        self._sums: list[Any] = []

    def add(self, grads: list[Any]) -> list[Any]:
        """The sums with these gradients added. None where no step had a gradient."""
        if not self._sums:
            self._sums = [None] * len(grads)
        for i, grad in enumerate(grads):
            if grad is not None:
                # A copy: the backend may write the next gradient into the same memory.
                self._sums[i] = grad + 0 if self._sums[i] is None else self._sums[i] + grad
        self.counter += 1
        return self._sums

    @property
    def is_complete(self) -> bool:
        """Whether the sums are to be reduced now."""
        return self.counter >= self.backward_passes_per_step

    def finish(self, reduced: list[Any]) -> list[Any]:
        """The gradients to apply. The sums begin anew: an infinite gradient must not survive."""
        self._sums, self.counter = [], 0
        if not self.average_aggregated_gradients:
            return reduced
        return [None if grad is None else grad / self.backward_passes_per_step for grad in reduced]
