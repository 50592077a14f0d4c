"""A function that runs at the end of a backward pass."""

from __future__ import annotations

from collections.abc import Callable

from horovod.torch._private import current_node, current_pass, when_backward_ends


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
