"""Data loaders that load ahead in a thread, for any framework."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import Empty, Full, Queue
from typing import TYPE_CHECKING, Any

__all__ = ["AsyncDataLoaderMixin", "BaseDataLoader"]

_LOOK_S = 0.1  # how often a thread that waits for room looks whether it is to end


class BaseDataLoader(ABC):
    """A source of batches. Subclasses say how many there are in an epoch and give them; batches may be of any type."""

    @abstractmethod
    def __len__(self) -> int:
        """Batches of an epoch."""

    @abstractmethod
    def _iterate(self) -> Iterator[Any]:
        """The batches of one epoch."""

    def _process_batch(self, batch: Any) -> Any:
        """What the user gets for a batch, made in the thread of the user: to move it to a device, say."""
        return batch

    def __iter__(self) -> Iterator[Any]:
        for batch in self._iterate():
            yield self._process_batch(batch)


class _Failed:
    """In the queue: the loader has raised this."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Closed:
    """In the queue: close_async_loader() was called, nothing comes any more."""


class _Ahead:
    """A thread that loads, and what it has loaded: an iteration keeps those that it began with."""

    def __init__(self, size: int, load: Callable[[_Ahead], None]) -> None:
        self.queue: Queue[Any] = Queue(size)  # batches, None after an epoch, _Failed, _Closed
        self.is_closed = threading.Event()
        self._thread = threading.Thread(target=load, args=(self,), name="hvd-loader", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread, forgets what it has loaded, and tells all iterations, on whatever thread they wait."""
        self.is_closed.set()
        self._thread.join()
        with suppress(Empty):
            while True:
                self.queue.get_nowait()
        self.close_next()

    def close_next(self) -> None:
        """Tells the next iteration that asks."""
        with suppress(Full):  # it has been told
            self.queue.put_nowait(_Closed())


# The mixin is none itself: a loader beside it may be any class that has these methods.
if TYPE_CHECKING:
    _Loader = BaseDataLoader
else:
    _Loader = object


class AsyncDataLoaderMixin(_Loader):
    """Put before a BaseDataLoader, `class Loader(AsyncDataLoaderMixin, MyLoader)`, it loads ahead in a thread.

    The thread starts with the first iteration and goes on with the next epoch by itself; so an iteration that stops
    early is continued by the next one. What the loader raises is raised in the iteration that comes to it; the next
    iteration starts anew. `close_async_loader()` ends the thread; the process does not wait for it.

    Args:
        async_loader_queue_size: batches loaded ahead at most; 0: none, and no thread.
        debug_data_loader: prints when the thread starts, waits for room, and ends.
        args, kwargs: those of the loader.
    Raises:
        ValueError: a negative async_loader_queue_size.
    """

    def __init__(
        self, async_loader_queue_size: int = 64, debug_data_loader: bool = False, *args: Any, **kwargs: Any
    ) -> None:
        if async_loader_queue_size < 0:
            raise ValueError(f"async_loader_queue_size is {async_loader_queue_size}, expected 0 or more")
        self.async_loader_queue_size = async_loader_queue_size
        self.debug_data_loader = debug_data_loader
        self._async_ahead: _Ahead | None = None
        super().__init__(*args, **kwargs)

    def _say(self, text: str) -> None:
        if self.debug_data_loader:
            print(f"{type(self).__name__}: {text}", flush=True)

    def _put(self, ahead: _Ahead, item: Any) -> bool:
        """False when the thread is to end."""
        said = False
        while not ahead.is_closed.is_set():
            try:
                ahead.queue.put(item, timeout=_LOOK_S)
            except Full:
                if not said:
                    self._say(f"{self.async_loader_queue_size} batches are loaded, it waits until one is taken")
                said = True
            else:
                return True
        return False

    def _load_ahead(self, ahead: _Ahead) -> None:
        self._say("the loading thread starts")
        try:
            going_on = True
            while going_on:
                going_on = all(self._put(ahead, batch) for batch in self._iterate()) and self._put(ahead, None)
        except BaseException as error:
            self._put(ahead, _Failed(error))
        self._say("the loading thread ends")

    def close_async_loader(self) -> None:
        """Ends the thread and forgets what it has loaded, and with that iterations that have not ended, on whatever
        thread. It waits for a batch that is being loaded."""
        ahead, self._async_ahead = self._async_ahead, None
        if ahead is not None:
            ahead.close()

    def __iter__(self) -> Iterator[Any]:
        if self.async_loader_queue_size == 0:
            yield from super().__iter__()
            return
        if self._async_ahead is None:
            self._async_ahead = _Ahead(self.async_loader_queue_size, self._load_ahead)
        ahead = self._async_ahead
        while (item := ahead.queue.get()) is not None:
            if isinstance(item, _Closed):
                ahead.close_next()
                return
            if isinstance(item, _Failed):
                if self._async_ahead is ahead:
                    self.close_async_loader()
                raise item.error
            yield self._process_batch(item)
