"""What rank 0 logs, from Ray's queue to the caller's callbacks."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.queue import Queue
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

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
    # On the caller's node: any other may be lost.
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    queue = Queue(actor_options={"num_cpus": 0, "scheduling_strategy": here})
    errors: list[BaseException] = []
    thread = threading.Thread(target=_pass_on, args=(queue, callbacks, errors), name="hvd-callbacks", daemon=True)
    thread.start()
    try:
        yield queue
    finally:
        with contextlib.suppress(RayError):  # the thread has met the same
            queue.put(_END)
        thread.join()
        queue.shutdown(force=True)
    if errors:
        raise errors[0]


def _pass_on(queue: Queue, callbacks: Sequence[Callback], errors: list[BaseException]) -> None:
    try:
        while (value := queue.get()) != _END:
            if not errors:
                _call(callbacks, value, errors)
    except RayError as error:
        errors.append(error)


def _call(callbacks: Sequence[Callback], value: Any, errors: list[BaseException]) -> None:
    try:
        for callback in callbacks:
            callback(value)
    except BaseException as error:
        errors.append(error)
