"""Something to be done at the end of a backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import Variable


class BackwardEnd:
    """Calls a function when the outermost backward() that runs has come to its end, on the thread that called it.

    What the function raises, backward() raises. A backward() that fails calls nothing.
    """

    __slots__ = ("_tasks",)

    def __init__(self) -> None:
        self._tasks: set[int] = set()  # passes that call already

    def expect(self, then: Callable[[], None]) -> None:
        """Requires: called during a backward pass, by a hook. Once for each pass, however often it is called."""
        task = torch._C._current_graph_task_id()
        if task in self._tasks:
            return
        self._tasks.add(task)

        def ended() -> None:
            node: Any = torch._C._current_autograd_node()
            if node is None:
                self._tasks.clear()
                then()
            else:  # a pass within a pass, of a reentrant checkpoint for example: the outer one goes on
                node.register_hook(lambda *_: self.expect(then))

        Variable._execution_engine.queue_callback(ended)
