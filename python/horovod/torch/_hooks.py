"""The hooks of an optimizer on its parameters, which call it after a gradient was accumulated."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TypeVar

import torch

_Owner = TypeVar("_Owner")


class Hooks:
    """Removed with their owner. They keep neither it nor a parameter alive: gc would not find such a cycle."""

    __slots__ = ("_added", "_hook")

    def __init__(self, owner: _Owner, ready: Callable[[_Owner, torch.Tensor], None]) -> None:
        """`ready` is a method of the owner's class, not bound to it."""
        reference = weakref.ref(owner)

        def hook(parameter: torch.Tensor) -> None:
            alive = reference()
            if alive is not None:
                ready(alive, parameter)

        self._hook = hook
        self._added: list[torch.utils.hooks.RemovableHandle] = []
        weakref.finalize(owner, _remove_all, self._added).atexit = False

    def add(self, parameter: torch.Tensor) -> None:
        hook = parameter.register_post_accumulate_grad_hook(self._hook)  # type: ignore[no-untyped-call]
        self._added.append(hook)


def _remove_all(hooks: list[torch.utils.hooks.RemovableHandle]) -> None:
    for hook in hooks:
        hook.remove()
