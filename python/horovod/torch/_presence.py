"""What ranks tell each other in every step: which parameters have a gradient, and in which form.

A rank that has none sends zeros, or no rows, for another that has one. Only together they know whether anybody had one:
if not, the parameter keeps its None and the wrapped optimizer leaves it alone, as in one process. Nor does every rank
know by itself what the others send: who had joined when a parameter was used for the first time did not learn of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from horovod._common.calls import unscaled
from horovod._common.native import core
from horovod.torch._gradient import DENSE, UNKNOWN, UNUSED, Gradient, GradientSettings, RepeatedAllreduce

_SUMS = (core.REDUCE_AVERAGE, core.REDUCE_SUM)


class Presence:
    """One small allreduce a step. Made anew when parameters are added.

    Three numbers for each parameter, added up over the ranks: 1 where it has a gradient, 1 where it has one or one is
    expected of others, and the number of its sparse dimensions there; before them one that asks the others to compare
    their parameters. A rank that has joined adds zeros: it has none. Sent as the gradients usually are, so that the
    core puts it into one buffer with them. From start() to end() it is `running`, also if wait() was interrupted.
    """

    def __init__(self, settings: GradientSettings, gradients: Iterable[Gradient]) -> None:
        # Ranks may hold their parameters in another order.
        self._gradients: Sequence[Gradient] = sorted(gradients, key=lambda gradient: gradient.name)
        self._positions = {id(gradient): position for position, gradient in enumerate(self._gradients, 1)}
        usual = (_row(gradient.form, True) for gradient in self._gradients)
        self._usual = torch.tensor([(0.0, 0.0, 0.0), *usual])
        self.running = False
        self._rows = torch.zeros_like(self._usual)
        self._answer: list[list[float]] | None = None
        reduction = settings.reduction
        self._process_set = reduction.process_set
        self._alone = True
        if reduction.op not in _SUMS:
            reduction = unscaled(core.REDUCE_SUM, self._process_set)
        self._allreduce = RepeatedAllreduce(
            f"allreduce.{self._gradients[0].name}.presence",
            tuple(self._rows.shape),
            core.DTYPE_FLOAT32,
            reduction.for_core(),
        )

    def start(self, unusual: Sequence[Gradient], asks: bool) -> None:
        """Tells the other ranks of this step. `unusual` are those for which is_usual() is false.

        Requires: it is not running, and so nothing works on the numbers any more.
        """
        self._answer = None
        self._rows.copy_(self._usual)
        if asks:
            self._rows[0, 0] = 1.0
        if unusual:
            positions = [self._positions[id(gradient)] for gradient in unusual]
            self._rows[positions] = torch.tensor([_own_row(gradient) for gradient in unusual])
        self._alone = self._process_set.size() == 1
        if not self._alone:
            self._allreduce.start(self._rows.data_ptr(), self._rows.shape, self._rows)
        self.running = True

    def wait(self) -> None:
        """Until all ranks have told theirs. May be called again."""
        if self.running and not self._alone:
            self._allreduce.wait()

    def end(self) -> None:
        """This step is over. Requires: wait() has returned or failed."""
        self.running = False

    def comparison_wanted(self) -> bool:
        """Whether a rank wants parameters to be compared. Requires: wait() has returned."""
        return bool(self._rows[0, 0] > 0)

    def form(self, gradient: Gradient) -> int:
        """The gradient's form on the ranks that have one or expect it; UNUSED if none does. Requires: as is_used()."""
        _, expected, sparse_dims = self._row_of(gradient)
        return DENSE + round(sparse_dims / expected) if expected > 0 else UNUSED

    def is_used(self, gradient: Gradient) -> bool:
        """Whether any rank has a gradient. Requires: wait() has returned."""
        return self._row_of(gradient)[0] > 0

    def _row_of(self, gradient: Gradient) -> list[float]:
        if self._answer is None:
            self._answer = self._rows.tolist()
        return self._answer[self._positions[id(gradient)]]

    def learn(self, gradients: Iterable[Gradient]) -> None:
        """Notes the forms that ranks have told as those to expect from now on."""
        for gradient in gradients:
            gradient.form = self.form(gradient)
            self._usual[self._positions[id(gradient)]] = torch.tensor(_row(gradient.form, True))


def is_usual(gradient: Gradient) -> bool:
    """Whether this rank has a gradient of the parameter if ranks have had one before."""
    has_none = gradient.target is None and gradient.parameter.grad is None
    return gradient.form != UNKNOWN and has_none is (gradient.form == UNUSED)


def _own_row(gradient: Gradient) -> tuple[float, float, float]:
    own = gradient.own_form()
    return _row(own, True) if own != UNUSED else _row(gradient.form, False)


def _row(form: int, has: bool) -> tuple[float, float, float]:
    return (float(has), 1.0, float(form - DENSE)) if form >= DENSE else (0.0, 0.0, 0.0)
