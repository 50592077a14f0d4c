"""What rank 0 logs, from Ray's queue to the caller's callbacks."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ray.util.queue import Queue

__all__ = ["listening"]

Callback = Callable[[Any], Any]
_END = "horovod.ray: the call has ended"


@contextlib.contextmanager
def listening(callbacks: Sequence[Callback] | None) -> Iterator[Queue | None]:
    """A queue; each value that is put into it goes to all `callbacks`, on a thread, until the block ends.

    None without callbacks. What a callback raises is raised when the block has ended, and it is called no more.
    """
    if not callbacks:
        yield None
        return
    queue = Queue(actor_options={"num_cpus": 0})
    errors: list[BaseException] = []
    thread = threading.Thread(target=_pass_on, args=(queue, callbacks, errors), name="hvd-callbacks", daemon=True)
    thread.start()
    try:
        yield queue
    finally:
        queue.put(_END)
        thread.join()
        queue.shutdown(force=True)
    if errors:
        raise errors[0]


def _pass_on(queue: Queue, callbacks: Sequence[Callback], errors: list[BaseException]) -> None:
    while (value := queue.get()) != _END:
        if errors:
            continue
        try:
            for callback in callbacks:
                callback(value)
        except BaseException as error:
            errors.append(error)
