"""What autograd calls during a backward pass: hooks after a gradient was accumulated, and a function at its end."""

from __future__ import annotations

import traceback
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from horovod.torch._private import current_node, current_pass, when_backward_ends

_Owner = TypeVar("_Owner")

_TOO_MANY_PASSES = "Gradients were computed more than backward_passes_per_step times before call to step(). "
_ACCUMULATE = "Increase backward_passes_per_step to accumulate gradients locally."
_CHECKPOINTS = (
    "A layer gets a gradient in each reentrant checkpoint that uses it, and another one where it is used outside of "
    "them, all in one backward(): pass use_reentrant=False to checkpoint()."
)


def too_many_passes() -> AssertionError:
    """For a hook to raise: its parameter was to get no gradient any more before step()."""
    frames = traceback.walk_stack(None)
    in_checkpoint = any(frame.f_globals.get("__name__") == "torch.utils.checkpoint" for frame, _ in frames)
    return AssertionError(_TOO_MANY_PASSES + (_CHECKPOINTS if in_checkpoint else _ACCUMULATE))


class Hooks:
    """The hooks of an optimizer on its parameters.

    Removed with their owner. They keep neither it nor a parameter alive: gc would not find such a cycle."""

    __slots__ = ("_added", "_called", "_hook")

    def __init__(self, owner: _Owner, ready: Callable[[_Owner, torch.Tensor], None]) -> None:
        """`ready` is a method of the owner's class, not bound to it."""
        reference = weakref.ref(owner)
        called: list[Callable[[Any, torch.Tensor], None]] = [ready]  # not self, which would make a cycle

        def hook(parameter: torch.Tensor) -> None:
            alive = reference()
            if alive is not None:
                called[0](alive, parameter)

        self._called = called
        self._hook = hook
        self._added: list[torch.utils.hooks.RemovableHandle] = []
        weakref.finalize(owner, _remove_all, self._added).atexit = False

    def add(self, parameter: torch.Tensor) -> None:
        hook = parameter.register_post_accumulate_grad_hook(self._hook)  # type: ignore[no-untyped-call]
        self._added.append(hook)

    @contextmanager
    def calling(self, other: Callable[[_Owner, torch.Tensor], None]) -> Iterator[None]:
        """A context in which they call `other`, too a method that is not bound."""
        before = self._called[0]
        self._called[0] = other
        try:
            yield
        finally:
            self._called[0] = before

    def remove(self) -> None:
        """Removes them before their owner ends."""
        _remove_all(self._added)
        self._added.clear()


def _remove_all(hooks: list[torch.utils.hooks.RemovableHandle]) -> None:
    for hook in hooks:
        hook.remove()


class BackwardEnd:
    """Calls a function at the end of the outermost running backward(), on the thread that called backward().

    Exceptions of the function come out of backward(). A backward() that fails does not call it.
    """

    __slots__ = ("_tasks",)

    def __init__(self) -> None:
        self._tasks: set[int] = set()  # passes for which a call is queued

    def expect(self, then: Callable[[], None]) -> None:
        """Queues one call of `then` for the running pass, however often it is called. Requires: called by a hook."""
        task = current_pass()
        if task in self._tasks:
            return
        self._tasks.add(task)

        def ended() -> None:
            node = current_node()
            if node is None:
                self._tasks.clear()
                then()
            else:  # a pass within a pass, of a reentrant checkpoint for example: the outer one has not ended
                node.register_hook(lambda *_: self.expect(then))

        when_backward_ends(ended)
