"""Exchanges in every step which parameters have a gradient on any rank, and in which form.

A rank without a gradient contributes zeros, or no rows. Only all ranks together know whether one has a gradient: if
none has, the parameter keeps None and the wrapped optimizer does not change it, as in one process. Nor does a rank know
by itself what the others send: one that had joined when a parameter was first used has not learned of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from horovod._common.calls import unscaled
from horovod._common.native import core
from horovod.torch._gradient import (
    DENSE,
    UNKNOWN,
    UNUSED,
    Gradient,
    GradientSettings,
    RepeatedAllreduce,
    shared_zeros,
)

_SUMS = (core.REDUCE_AVERAGE, core.REDUCE_SUM)


class Presence:
    """One small allreduce a step. Replaced when parameters are added.

    Three numbers for each parameter, summed over the ranks: 1 if it has a gradient; 1 if it has one or expects one of
    others; the number of its sparse dimensions in these cases. Before them a row of requests: a comparison of all
    parameters, buckets for gradients that have none, new buckets for all; and one that counts the ranks. A rank that
    has joined adds zeros. Reduced like most gradients, so that the core fuses it with them. From start() to end() it is
    `running`, also if wait() was interrupted.
    """

    def __init__(self, settings: GradientSettings, gradients: Iterable[Gradient]) -> None:
        # Ranks may hold their parameters in another order.
        self._gradients: Sequence[Gradient] = sorted(gradients, key=lambda gradient: gradient.name)
        self._positions = {id(gradient): position for position, gradient in enumerate(self._gradients, 2)}
        usual = (_row(gradient.form, True) for gradient in self._gradients)
        self._usual = _tensor([(0.0, 0.0, 0.0), (1.0, 0.0, 0.0), *usual])
        self.running = False
        rows = tuple(self._usual.shape)
        # The core may fuse them with buckets, and copies nothing only if all lies in shared memory.
        self._rows = shared_zeros(rows, torch.float32) if settings.as_bucket_view else torch.zeros_like(self._usual)
        self._answer: list[list[float]] | None = None
        reduction = settings.reduction
        self._process_set = reduction.process_set
        self._alone = True
        self._averages = reduction.op == core.REDUCE_AVERAGE
        if reduction.op not in _SUMS:
            reduction = unscaled(core.REDUCE_SUM, self._process_set)
        self._allreduce = RepeatedAllreduce(
            f"allreduce.{self._gradients[0].name}.presence",
            tuple(self._rows.shape),
            core.DTYPE_FLOAT32,
            reduction.for_core(),
        )

    def start(self, requests: tuple[bool, bool, bool]) -> None:
        """Sends the numbers of this step.

        Requires: it is not running, so that no operation uses the numbers.
        """
        self._answer = None
        self._rows.copy_(self._usual)
        if any(requests):
            self._rows[0] = _tensor(requests)
        unusual = _unusual(self._gradients)
        if unusual:
            positions = [self._positions[id(gradient)] for gradient in unusual]
            self._rows[positions] = _tensor([_own_row(gradient) for gradient in unusual])
        self._alone = self._process_set.size() == 1
        if not self._alone:
            self._allreduce.start(self._rows.data_ptr(), self._rows.shape, self._rows)
        self.running = True

    def wait(self) -> None:
        """Waits for the numbers of all ranks. May be called again."""
        if self.running and not self._alone:
            self._allreduce.wait()

    def end(self) -> None:
        """Ends this step. Requires: wait() has returned or failed."""
        self.running = False

    def requests(self) -> tuple[bool, ...]:
        """What any rank requests. Requires: wait() has returned."""
        return tuple(request > 0 for request in self._answered()[0])

    def is_everyone_here(self) -> bool:
        """Whether no rank of the set has joined. Requires: wait() has returned."""
        if self._alone:
            return True
        size = self._process_set.size() or 0
        here = self._answered()[1][0]
        return here * size > size - 0.5 if self._averages else here > size - 0.5

    def form(self, gradient: Gradient) -> int:
        """The gradient's form on the ranks that have or expect one; UNUSED if none does. Requires: as is_used()."""
        _, expected, sparse_dims = self._row_of(gradient)
        return DENSE + round(sparse_dims / expected) if expected > 0 else UNUSED

    def is_used(self, gradient: Gradient) -> bool:
        """Whether any rank has a gradient. Requires: wait() has returned."""
        return self._row_of(gradient)[0] > 0

    def _row_of(self, gradient: Gradient) -> list[float]:
        return self._answered()[self._positions[id(gradient)]]

    def _answered(self) -> list[list[float]]:
        if self._answer is None:
            self._answer = self._rows.tolist()
        return self._answer

    def learn(self, gradients: Iterable[Gradient]) -> None:
        """Stores the forms that the ranks sent as those to expect from now on."""
        for gradient in gradients:
            gradient.form = self.form(gradient)
            self._usual[self._positions[id(gradient)]] = _tensor(_row(gradient.form, True))


def _tensor(rows: Sequence[object]) -> torch.Tensor:
    """Whatever type and device a program has set for tensors that name none."""
    return torch.tensor(rows, dtype=torch.float32, device="cpu")


def _unusual(gradients: Iterable[Gradient]) -> list[Gradient]:
    """Those that are new, or that this rank has where no rank had one before, or lacks where ranks had one."""
    return [
        gradient
        for gradient in gradients
        if gradient.form == UNKNOWN
        or (gradient.target is None and gradient.parameter.grad is None) is not (gradient.form == UNUSED)
    ]


def _own_row(gradient: Gradient) -> tuple[float, float, float]:
    own = gradient.own_form()
    return _row(own, True) if own != UNUSED else _row(gradient.form, False)


def _row(form: int, has: bool) -> tuple[float, float, float]:
    return (float(has), 1.0, float(form - DENSE)) if form >= DENSE else (0.0, 0.0, 0.0)
