"""What ranks log, from Ray's queue to the caller's callbacks."""

from __future__ import annotations

import contextlib
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import cloudpickle
import ray
from ray.exceptions import RayError
from ray.util.queue import Queue
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

__all__ = ["CallbackQueue", "listening"]

Callback = Callable[[Any], Any]
_END = b""  # which is no pickle


class CallbackQueue:
    """Takes what ranks log, in their processes too. Only the caller reads it: Ray's actor of the queue may not know the
    classes of the values."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def put(self, item: Any) -> None:
        self.put_pickled(cloudpickle.dumps(item, protocol=pickle.HIGHEST_PROTOCOL))

    def put_pickled(self, data: bytes) -> None:
        self._queue.put(data)


@contextlib.contextmanager
def listening(callbacks: Sequence[Callback] | None) -> Iterator[CallbackQueue | None]:
    """A queue; each value that is put into it goes to all `callbacks`, on a thread, until the block ends.

    None without callbacks. What a callback raises, or reading a value, is raised when the block has ended, and no more
    values are read.
    """
    if not callbacks:
        yield None
        return
    # On the caller's node: any other may be lost.
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    queue = Queue(actor_options={"num_cpus": 0, "scheduling_strategy": here})
    errors: list[BaseException] = []
    thread = threading.Thread(target=_pass_on, args=(queue, callbacks, errors), name="hvd-callbacks", daemon=True)
    thread.start()
    try:
        yield CallbackQueue(queue)
    finally:
        with contextlib.suppress(RayError):  # the thread has met the same
            queue.put(_END)
        thread.join()
        queue.shutdown(force=True)
    if errors:
        raise errors[0]


def _pass_on(queue: Queue, callbacks: Sequence[Callback], errors: list[BaseException]) -> None:
    try:
        while (data := queue.get()) != _END:
            if not errors:
                _call(callbacks, data, errors)
    except RayError as error:
        errors.append(error)


def _call(callbacks: Sequence[Callback], data: bytes, errors: list[BaseException]) -> None:
    try:
        value = _read(data)
        for callback in callbacks:
            callback(value)
    except BaseException as error:
        errors.append(error)


def _read(data: bytes) -> Any:
    try:
        return pickle.loads(data)
    except Exception as error:
        raise ValueError(f"horovod.ray.ray_logger.log(): a value cannot be read here: {error!r}") from error
