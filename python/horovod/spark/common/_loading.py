"""Batches that a thread makes ahead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from horovod.data import AsyncDataLoaderMixin, BaseDataLoader


class Loader(BaseDataLoader):
    """The first `batches` of what `more()` gives, anew each time it is iterated over; None: all.

    `more` may return the same iterator each time: then each iteration goes on where the one before has ended.
    """

    def __init__(self, batches: int | None, more: Callable[[], Iterator[Any]]) -> None:
        self._batches = batches
        self._more = more

    def __len__(self) -> int:
        if self._batches is None:
            raise TypeError("batches without end have no number")
        return self._batches

    def _iterate(self) -> Iterator[Any]:
        return islice(self._more(), self._batches)


class LoaderAhead(AsyncDataLoaderMixin, Loader):
    """The same, made ahead in a thread. Arguments: see AsyncDataLoaderMixin, then those of Loader."""
