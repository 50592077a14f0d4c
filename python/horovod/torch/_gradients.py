"""Reduction of gradients while backward is still running: the implementation of DistributedOptimizer.

A GradientReducer belongs to one optimizer. Its hooks run on the thread that runs backward, the rest on the user's
thread; autograd never runs both at once. The cycle of a parameter: `passes_left` counts down to 0 -> submitted
(`pending`) -> written back by finish() -> `passes_left` is reset. It decides when to submit, and changes no parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import torch

from horovod._common.session import follow_sessions, is_initialized
from horovod.common.exceptions import HorovodInternalError
from horovod.torch._buckets import Buckets
from horovod.torch._exchange import Exchange
from horovod.torch._gradient import UNUSED, Gradient, GradientSettings, Group
from horovod.torch._hooks import BackwardEnd, Hooks, too_many_passes
from horovod.torch._in_flight import CHANGED, SCALER, Reduced, first_changed, raise_or_warn
from horovod.torch._sender import Sender
from horovod.torch._session import session_number
from horovod.torch._tensors import start_tensor


class GradientReducer:
    """Submits each gradient when backward has computed it, and writes the reduced ones back."""

    def __init__(self, settings: GradientSettings, passes: int, in_backward: bool) -> None:
        self._sender = Sender(settings)
        self._buckets = Buckets(settings) if settings.as_bucket_view else None
        self._passes = passes
        self._gradients: dict[int, Gradient] = {}
        self._frozen: dict[int, tuple[torch.Tensor, str]] = {}
        self._exchange = Exchange(settings, self._buckets)
        self._hooks = Hooks(self, GradientReducer.ready_in_backward if in_backward else GradientReducer.ready)
        self._end = BackwardEnd()
        self._ended_passes = 0
        self._begun = False
        self._session = -1  # number of the session in which this step was begun
        self._error: Exception | None = None
        self.is_reduced = False  # before step(), and no backward() has begun since
        self.has_local = False  # since it was last finished a backward() within holding() has added to gradients
        self._reduced = Reduced()
        follow_sessions(self)

    def on_session_start(self) -> None:
        """Forgets the step that was begun in an earlier session; its operations have ended with that."""
        self._reset()
        self.discard_reduced()
        if self._buckets is not None:
            self._buckets.drop()
            self._exchange.forget()  # its memory is of the earlier session, too

    @property
    def begun(self) -> bool:
        """True from the first gradient of a step until finish()."""
        return self._begun

    # Setting up

    def attach(self, parameter: torch.Tensor, name: str) -> None:
        """Reduces the gradient of a parameter from now on; of a frozen one, after it requires a gradient."""
        if id(parameter) in self._gradients:
            return
        if not parameter.requires_grad:
            self._frozen[id(parameter)] = (parameter, name)
            return
        if self._exchange.running:  # of an interrupted step(), without this parameter
            self.drain()
        self._exchange.forget()
        self._frozen.pop(id(parameter), None)
        self._gradients[id(parameter)] = Gradient(parameter, name, self._passes)
        if self._buckets is not None:
            self._buckets.wanted = True
        self._hooks.add(parameter)

    def group(self, parameters: Sequence[torch.Tensor]) -> None:
        """Reduces the gradients of attached parameters together; frozen ones are left out."""
        members = [self._gradients[id(p)] for p in parameters if id(p) in self._gradients]
        if len(members) < 2:
            return
        group = Group(members)
        for gradient in members:
            gradient.group = group

    def set_passes(self, passes: int) -> None:
        """Changes the number of backward passes in a step, and counts from 0 again."""
        self.drain()
        self._passes = passes
        self._reset()

    def drain(self) -> None:
        """Completes the step that ranks have begun, so that no rank waits, and discards the results.

        Not in another session than that of the step: its operations have ended with it.
        """
        if self._begun and self._session == session_number() and is_initialized():
            with suppress(HorovodInternalError):  # the results are discarded
                self._finish()
        self._reset()
        self.discard_reduced()

    def discard_reduced(self) -> None:
        """The reduced gradients were used or are given up: backward() may add to them again."""
        self.is_reduced = self.has_local = False
        self._reduced.clear()

    @contextmanager
    def holding(self) -> Iterator[None]:
        """A context in which backward() only adds to this rank's gradients: passes are not counted, nothing is sent."""
        with self._hooks.calling(GradientReducer._held):
            yield

    def _held(self, parameter: torch.Tensor) -> None:
        if self._reduced.was_changed(parameter):
            raise too_many_passes()
        self.has_local = True
        self.is_reduced = False

    def accept_more(self) -> None:
        """The next backward() may add to gradients that are reduced already: all are reduced again, also on a rank
        where it adds nothing.

        Only with Average that leaves the first part, which is the same on all ranks, as it is.
        """
        self.is_reduced = False
        self._reduced.clear()

    def detach(self) -> None:
        """Reduces nothing any more: another optimizer of the same parameters may take over."""
        self._hooks.remove()

    def _reset(self) -> None:
        for gradient in self._gradients.values():
            gradient.passes_left = self._passes
            gradient.pending = gradient.target = gradient.sent = gradient.ctx = None
            gradient.absent = False
            if gradient.group is not None:
                gradient.group.missing = len(gradient.group.members)
        if self._buckets is not None:
            self._buckets.restart()
        self._exchange.end()
        self._error = None
        self._begun = False
        self.has_local = False
        self._ended_passes = 0

    def _begin(self) -> None:
        self._begun = True
        self._session = session_number()
        self.is_reduced = False

    # During backward

    def ready(self, parameter: torch.Tensor) -> None:
        """Called by the hook: a backward pass has added to the parameter's grad. Takes a few microseconds.

        The common cases are written out, because one Python call is a tenth of all that time.
        """
        gradient = self._gradients[id(parameter)]
        left = gradient.passes_left
        grad = parameter.grad
        if left <= 0:
            if grad is not None:
                gradient.version = grad._version  # or finish() would raise for the same gradient again
            raise too_many_passes()
        if grad is not None and grad.requires_grad:
            raise AssertionError(f"the gradient of {gradient.name} requires a gradient itself; it cannot be reduced")
        gradient.passes_left = left - 1
        if not self._begun:
            self._begin()
        if left > 1:
            return
        dense = gradient.dense
        if dense is not None and grad is not None and grad.dtype is gradient.dtype:
            sent, half = grad, gradient.half
            if half is not None and half.shape == grad.shape and grad.layout is torch.strided:
                half.copy_(grad)
                sent = half
            if start_tensor(dense, sent):
                gradient.target = grad
                gradient.version = grad._version
                gradient.sent = sent
                gradient.pending = dense
                return
        self._advance(gradient)

    def ready_in_backward(self, parameter: torch.Tensor) -> None:
        """As ready(); the running backward() finishes the reduction at its end, if it is the last of the step."""
        if self._reduced.was_changed(parameter):
            raise too_many_passes()
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
        if gradient.bucket is not None and self._buckets is not None:
            try:
                self._buckets.take_in(gradient)
            except Exception as raised:  # a script may catch it and go on: finish() is to raise it too
                self._error = self._error or raised
                raise
        elif group is not None:
            group.missing -= 1
            if group.missing == 0:
                self._sender.submit_group(group)
        elif gradient.form != UNUSED:  # else only Presence knows whether any rank expects it
            self._sender.submit(gradient)

    # Finishing

    def finish(self) -> None:
        """Submits the gradients that backward did not reach, waits for all and writes the results to the grads.

        If operations fail, it waits for the others, then raises the first error. After KeyboardInterrupt all are still
        in flight: the next call of this or of drain() waits for them.
        """
        changed = first_changed(self._gradients.values())
        self._finish()
        if changed is not None:
            raise_or_warn(CHANGED.format(name=changed))

    def expect_unchanged(self) -> None:
        """RuntimeError, or a warning, if a gradient that is in flight was changed. finish() comes first.

        Other ranks may wait in finish(), because their gradient scaler did not skip this step after an overflow.
        """
        if first_changed(self._gradients.values()) is not None:
            self.finish()

    def expect_no_scaler(self) -> None:
        """RuntimeError, or a warning, while gradients are in flight. finish() comes first; step() uses the results."""
        if self._begun:
            self.finish()
            self.is_reduced = True
            raise_or_warn(SCALER)

    def _finish(self) -> None:
        gradients, buckets = self._gradients.values(), self._buckets
        self._attempt(self._submit_missing)
        if buckets is not None:
            self._attempt(buckets.refuse_incomplete)
        for wait in (*self._sender.waits(gradients), self._exchange.wait):
            self._attempt(wait)
        if self._error is None:
            self._attempt(lambda: self._exchange.ask_for_buckets(gradients))
        try:
            if self._error is not None:
                raise self._error
            self._exchange.compare_parameters(gradients, self._frozen.values())
            self._write_back()
            if buckets is not None:
                buckets.make()
        finally:
            self._reset()

    def _attempt(self, do: Callable[[], object]) -> None:
        """Calls it, and keeps the first error of a step until all that is in flight has ended."""
        try:
            do()
        except Exception as raised:
            self._error = self._error or raised

    def _submit_missing(self) -> None:
        if not self._begun:
            self._begin()
        if not self._exchange.running:
            for parameter, name in list(self._frozen.values()):
                if parameter.requires_grad:
                    self.attach(parameter, name)
        gradients = list(self._gradients.values())
        if not gradients:
            return
        self._exchange.start(gradients)
        for gradient in gradients:
            if gradient.passes_left > 0:
                gradient.passes_left = 0
                self._advance(gradient)
        for gradient in self._exchange.newly_used(gradients):
            if gradient.group is None:  # groups are submitted as a whole in any case
                self._sender.submit(gradient)

    def _write_back(self) -> None:
        for gradient in self._gradients.values():
            target = gradient.target
            if target is None or (gradient.sent is target and gradient.parameter.grad is target):
                continue
            if not gradient.absent or self._exchange.is_used(gradient):
                self._sender.write_back(gradient)
