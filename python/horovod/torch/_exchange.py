"""What ranks tell each other in every step beside the gradients: which there are, whether parameters are compared, and
whether buckets are made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from horovod.torch._buckets import Buckets
from horovod.torch._gradient import UNKNOWN, UNUSED, Gradient, GradientSettings
from horovod.torch._parameter_check import ParameterCheck
from horovod.torch._presence import Presence


class Exchange:
    """One of a step, from start() to end(). GradientReducer decides when; `gradients` are all that are attached."""

    def __init__(self, settings: GradientSettings, buckets: Buckets | None) -> None:
        self._settings = settings
        self._buckets = buckets
        self._presence: Presence | None = None
        self._check = ParameterCheck()

    @property
    def running(self) -> bool:
        """From start() to end(), also if a step() was interrupted in between."""
        return self._presence is not None and self._presence.running

    def forget(self) -> None:
        """The next one is for other gradients. Requires: it is not running."""
        self._presence = None

    def start(self, gradients: Sequence[Gradient]) -> None:
        """Starts it, unless an interrupted step() has left it running, and learns the forms of gradients that are new:
        for a parameter without a gradient this rank has to send the form of the others' gradients.
        """
        if not self.running:
            self._begin(gradients)
        fresh = [gradient for gradient in gradients if gradient.form == UNKNOWN]
        if fresh:
            presence = self._started()
            presence.wait()
            presence.learn(fresh)

    def _begin(self, gradients: Sequence[Gradient]) -> None:
        if self._presence is None:
            self._presence = Presence(self._settings, gradients)
        buckets = self._buckets
        wishes = (buckets is not None and buckets.wanted, buckets is not None and buckets.outdated)
        self._presence.start((self._check.is_due(), *wishes))

    def newly_used(self, gradients: Sequence[Gradient]) -> Sequence[Gradient]:
        """Of the parameters that no rank had used before, those that a rank has used now, or expects others to."""
        unused = [gradient for gradient in gradients if gradient.form == UNUSED]
        if not unused:
            return ()
        presence = self._started()
        presence.wait()
        used = [gradient for gradient in unused if presence.form(gradient) != UNUSED]
        presence.learn(used)
        if used and self._buckets is not None:
            self._buckets.wanted = True
        return used

    def wait(self) -> None:
        """Waits for what all ranks told."""
        if self._presence is not None:
            self._presence.wait()

    def end(self) -> None:
        """Ends that of this step. Requires: wait() has returned or failed, or it is not running."""
        if self._presence is not None:
            self._presence.end()

    def is_used(self, gradient: Gradient) -> bool:
        """Whether any rank has a gradient. Requires: wait() has returned."""
        return self._presence is not None and self._presence.is_used(gradient)

    def compare_parameters(self, gradients: Iterable[Gradient], frozen: Iterable[tuple[torch.Tensor, str]]) -> None:
        """Compares them between ranks if one wishes it. Requires: wait() has returned. Errors as of ParameterCheck."""
        if self._presence is None or not self._presence.requests()[0]:
            return
        attached = [(gradient.name, gradient.parameter) for gradient in gradients]
        others = [(name, parameter) for parameter, name in frozen]
        self._check.compare([*attached, *others], self._settings.reduction.process_set)

    def ask_for_buckets(self, gradients: Iterable[Gradient]) -> None:
        """Asks which buckets ranks would make, if one wants any and none has joined. Requires: wait() has returned."""
        presence, buckets = self._presence, self._buckets
        if presence is None or buckets is None or not presence.is_everyone_here():
            return
        _, wanted, outdated = presence.requests()
        if wanted or outdated:
            buckets.ask(gradients, outdated)

    def _started(self) -> Presence:
        if self._presence is None:
            raise RuntimeError("the exchange of this step has not been started")
        return self._presence
