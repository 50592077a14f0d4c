"""Something to be done at the end of a backward pass."""

from __future__ import annotations

from collections.abc import Callable

from horovod.torch._private import current_node, current_pass, when_backward_ends


class BackwardEnd:
    """Calls a function when the outermost backward() that runs has come to its end, on the thread that called it.

    What the function raises, backward() raises. A backward() that fails calls nothing.
    """

    __slots__ = ("_tasks",)

    def __init__(self) -> None:
        self._tasks: set[int] = set()  # passes that call already

    def expect(self, then: Callable[[], None]) -> None:
        """Requires: called during a backward pass, by a hook. Once for each pass, however often it is called."""
        task = current_pass()
        if task in self._tasks:
            return
        self._tasks.add(task)

        def ended() -> None:
            node = current_node()
            if node is None:
                self._tasks.clear()
                then()
            else:  # a pass within a pass, of a reentrant checkpoint for example: the outer one goes on
                node.register_hook(lambda *_: self.expect(then))

        when_backward_ends(ended)
