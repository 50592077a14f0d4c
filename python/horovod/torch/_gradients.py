"""Reduction of gradients while backward still runs: what stands behind DistributedOptimizer.

A GradientReducer belongs to one optimizer. Its hooks run on the thread that runs backward, the rest on the user's
thread; autograd never runs both at once. Each parameter goes round: `left` backward passes to go -> submitted
(`pending`) -> written back by finish() -> `left` is full again. It decides when to submit, and changes no parameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import torch

from horovod.common.exceptions import HorovodInternalError
from horovod.torch._backward_end import BackwardEnd
from horovod.torch._gradient import UNKNOWN, UNUSED, Gradient, GradientSettings, Group, Sender
from horovod.torch._hooks import Hooks
from horovod.torch._in_flight import CHANGED, SCALER, Reduced, first_changed, raise_or_warn
from horovod.torch._parameter_check import ParameterCheck
from horovod.torch._presence import Presence, is_usual
from horovod.torch._session import session_number

TOO_MANY_PASSES = (
    "Gradients were computed more than backward_passes_per_step times before call to step(). "
    "Increase backward_passes_per_step to accumulate gradients locally."
)


class GradientReducer:
    """Submits each gradient when backward has made it, and writes the reduced ones back."""

    def __init__(self, settings: GradientSettings, passes: int, in_backward: bool) -> None:
        self._settings = settings
        self._sender = Sender(settings)
        self._passes = passes
        self._gradients: dict[int, Gradient] = {}
        self._frozen: dict[int, tuple[torch.Tensor, str]] = {}
        self._presence: Presence | None = None
        self._check = ParameterCheck()
        self._hooks = Hooks(self, GradientReducer.ready_in_backward if in_backward else GradientReducer.ready)
        self._end = BackwardEnd()
        self._ended_passes = 0
        self._begun = False
        self._session = -1  # the one in which it was begun
        self._error: Exception | None = None
        self.is_reduced = False  # reduced before step(), and nothing has begun since
        self._reduced = Reduced()

    @property
    def begun(self) -> bool:
        """True from the first gradient of a step until finish()."""
        return self._begun

    # Setting up

    def attach(self, parameter: torch.Tensor, name: str) -> None:
        """Watches a parameter from now on; one that is frozen, from when it is not."""
        if id(parameter) in self._gradients:
            return
        if not parameter.requires_grad:
            self._frozen[id(parameter)] = (parameter, name)
            return
        if self._presence is not None and self._presence.running:  # step() was interrupted, which knows nothing of it
            self.drain()
        self._presence = None
        self._frozen.pop(id(parameter), None)
        self._gradients[id(parameter)] = Gradient(parameter, name, self._passes)
        self._hooks.add(parameter)

    def group(self, parameters: Sequence[torch.Tensor]) -> None:
        """Makes attached parameters travel together; frozen ones are left out."""
        members = [self._gradients[id(p)] for p in parameters if id(p) in self._gradients]
        if len(members) < 2:
            return
        group = Group(members)
        for gradient in members:
            gradient.group = group

    def set_passes(self, passes: int) -> None:
        """Changes how many backward passes make a step, and starts counting anew."""
        self.drain()
        self._passes = passes
        self._reset()

    def drain(self) -> None:
        """Ends what was begun, together with ranks that began other parts of it, and starts counting anew.

        A session that is over took its operations with it; ranks need not agree on what they had begun in it.
        """
        if self._begun and self._session == session_number():
            with suppress(HorovodInternalError):  # nobody wants the results any more
                self._finish()
        self._reset()
        self.discard_reduced()

    def discard_reduced(self) -> None:
        """What was reduced is used, or given up: backward may add to it."""
        self.is_reduced = False
        self._reduced.clear()

    def _reset(self) -> None:
        for gradient in self._gradients.values():
            gradient.passes_left = self._passes
            gradient.pending = gradient.target = gradient.sent = gradient.ctx = None
            gradient.absent = False
            if gradient.group is not None:
                gradient.group.missing = len(gradient.group.members)
        if self._presence is not None:
            self._presence.end()
        self._error = None
        self._begun = False
        self._ended_passes = 0

    def _begin(self) -> None:
        self._begun = True
        self._session = session_number()
        self.is_reduced = False

    # During backward

    def ready(self, parameter: torch.Tensor) -> None:
        """A backward pass has added to the parameter's grad. Called by the hook; costs a few microseconds.

        The usual cases stand here, written out: a call of Python is a tenth of all there is to do.
        """
        gradient = self._gradients[id(parameter)]
        left = gradient.passes_left
        grad = parameter.grad
        if left <= 0:
            if grad is not None:
                gradient.version = grad._version  # this error is enough
            raise AssertionError(TOO_MANY_PASSES)
        if grad is not None and grad.requires_grad:
            raise AssertionError(f"the gradient of {gradient.name} requires a gradient itself; it cannot be reduced")
        gradient.passes_left = left - 1
        if not self._begun:
            self._begin()
        if left > 1:
            return
        dense = gradient.dense
        if dense is not None and grad is not None and grad.dtype is gradient.dtype:
            sent = gradient.half
            if sent is None:
                sent = grad if grad.is_contiguous() else None  # a sparse tensor is not
            elif sent.shape == grad.shape and grad.layout is torch.strided:
                sent.copy_(grad)
            else:
                sent = None
            if sent is not None:
                gradient.target = grad
                gradient.version = grad._version
                gradient.sent = sent
                dense.start(sent.data_ptr(), sent.shape, sent)
                gradient.pending = dense
                return
        self._advance(gradient)

    def ready_in_backward(self, parameter: torch.Tensor) -> None:
        """ready(); the backward() that runs now finishes the reduction at its end, if it is the last of the step."""
        if self._reduced.was_changed(parameter):
            raise AssertionError(TOO_MANY_PASSES)
        self._end.expect(self._backward_ended)
        self.ready(parameter)

    def _backward_ended(self) -> None:
        self._ended_passes += 1
        if self._ended_passes == self._passes:
            self.finish()
            self.is_reduced = True
            self._reduced.note(self._gradients.values())

    def _advance(self, gradient: Gradient) -> None:
        group = gradient.group
        if group is not None:
            group.missing -= 1
            if group.missing == 0:
                self._sender.submit_group(group)
        elif gradient.form != UNUSED:  # else it takes all ranks to tell whether anybody expects it
            self._sender.submit(gradient)

    # Finishing

    def finish(self) -> None:
        """Submits what backward did not reach, waits for everything and writes the results to the grads.

        Ends what it began also when an operation failed; the first error is raised then. After KeyboardInterrupt all
        is still in flight: what is called next, this or drain(), goes on waiting.
        """
        changed = first_changed(self._gradients.values())
        self._finish()
        if changed is not None:
            raise_or_warn(CHANGED.format(name=changed))

    def expect_unchanged(self) -> None:
        """RuntimeError if somebody changed a gradient that is in flight; if that only warns, nothing is in flight then.

        Ranks that did not skip this step, as a gradient scaler does after an overflow, wait in finish(): it ends first.
        """
        if first_changed(self._gradients.values()) is not None:
            self.finish()

    def expect_no_scaler(self) -> None:
        """RuntimeError while anything is in flight; it ends first, and a step() that follows takes it as it is."""
        if self._begun:
            self.finish()
            self.is_reduced = True
            raise_or_warn(SCALER)

    def _finish(self) -> None:
        try:
            self._submit_missing()
        except Exception as raised:
            self._error = self._error or raised
        self._wait()
        try:
            if self._error is not None:
                raise self._error
            self._compare_parameters()
            self._write_back()
        finally:
            self._reset()

    def _wait(self) -> None:
        """Until all that was submitted has ended; notes the first error."""
        waits = self._sender.waits(self._gradients.values())
        if self._presence is not None:
            waits.append(self._presence.wait)
        for wait in waits:
            try:
                wait()
            except Exception as raised:
                self._error = self._error or raised

    def _submit_missing(self) -> None:
        if not self._begun:
            self._begin()
        presence = self._start_presence()
        if presence is None:
            return
        gradients = list(self._gradients.values())
        fresh = [gradient for gradient in gradients if gradient.form == UNKNOWN]
        if fresh:  # what is sent for a parameter without a gradient has to have the form of the others' gradients
            presence.wait()
            presence.learn(fresh)
        for gradient in gradients:
            if gradient.passes_left > 0:
                gradient.passes_left = 0
                self._advance(gradient)
        self._wake(presence, [gradient for gradient in gradients if gradient.form == UNUSED])

    def _start_presence(self) -> Presence | None:
        """None without parameters. Goes on with one that was interrupted."""
        presence = self._presence
        if presence is not None and presence.running:
            return presence
        for parameter, name in list(self._frozen.values()):
            if parameter.requires_grad:
                self.attach(parameter, name)
        gradients = list(self._gradients.values())
        if not gradients:
            return None
        if self._presence is None:
            self._presence = Presence(self._settings, gradients)
        unusual = [gradient for gradient in gradients if not is_usual(gradient)]
        self._presence.start(unusual, self._check.is_due())
        return self._presence

    def _wake(self, presence: Presence, unused: list[Gradient]) -> None:
        """Sends the gradients of parameters that this rank knew no use of, if now a rank has or expects them."""
        if not unused:
            return
        presence.wait()
        woken = [gradient for gradient in unused if presence.form(gradient) != UNUSED]
        presence.learn(woken)
        for gradient in woken:
            if gradient.group is None:  # groups are sent as a whole in any case
                self._sender.submit(gradient)

    def _compare_parameters(self) -> None:
        if self._presence is None or not self._presence.comparison_wanted():
            return
        attached = [(gradient.name, gradient.parameter) for gradient in self._gradients.values()]
        frozen = [(name, parameter) for parameter, name in self._frozen.values()]
        self._check.compare([*attached, *frozen], self._settings.reduction.process_set)

    def _write_back(self) -> None:
        presence = self._presence
        for gradient in self._gradients.values():
            target = gradient.target
            if target is None or (gradient.sent is target and gradient.parameter.grad is target):
                continue
            if not gradient.absent or (presence is not None and presence.is_used(gradient)):
                self._sender.write_back(gradient)
