"""The hooks of an optimizer on its parameters, which call it after a gradient was accumulated."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

_Owner = TypeVar("_Owner")


class Hooks:
    """Removed with their owner. They keep neither it nor a parameter alive: gc would not find such a cycle."""

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
