"""horovod.data: a loader that loads ahead gives what the loader gives."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import chain

import pytest

from horovod.data import AsyncDataLoaderMixin, BaseDataLoader, data_loader_base

WAIT_S = 30


class Numbers(BaseDataLoader):
    def __init__(self, count: int, fail_at: int = -1) -> None:
        self.count = count
        self.fail_at = fail_at
        self.loaded: list[str] = []  # the names of the threads that loaded

    def __len__(self) -> int:
        return self.count

    def _iterate(self) -> Iterator[int]:
        for number in range(self.count):
            if number == self.fail_at:
                raise OSError(f"no record {number}")
            self.loaded.append(threading.current_thread().name)
            yield number

    def _process_batch(self, batch: int) -> int:
        assert threading.current_thread() is threading.main_thread()
        return 10 * batch


class AsyncNumbers(AsyncDataLoaderMixin, Numbers):
    pass


def test_old_scripts_find_them_in_a_module_of_their_own() -> None:
    assert data_loader_base.AsyncDataLoaderMixin is AsyncDataLoaderMixin


@pytest.mark.parametrize("queue_size", [0, 1, 64])
def test_every_epoch_has_all_batches_in_order(queue_size: int) -> None:
    loader = AsyncNumbers(queue_size, False, 5)
    assert len(loader) == 5
    for _ in range(3):
        assert list(loader) == [0, 10, 20, 30, 40]
    assert set(loader.loaded) == {"MainThread" if queue_size == 0 else "hvd-loader"}
    loader.close_async_loader()


def test_what_the_loader_raises_comes_after_the_batches_before_it() -> None:
    loader = AsyncNumbers(count=5, fail_at=2)
    for _ in range(2):
        seen = []
        with pytest.raises(OSError, match="no record 2"):
            seen.extend(loader)
        got = iter(loader)
        assert [next(got), next(got)] == [0, 10]
        with pytest.raises(OSError, match="no record 2"):
            next(got)


def test_closing_ends_a_thread_that_waits_for_room_and_the_next_iteration_starts_anew(
    capsys: pytest.CaptureFixture[str],
) -> None:
    loader = AsyncNumbers(1, True, 1000)
    batches = iter(loader)
    assert [next(batches) for _ in range(3)] == [0, 10, 20]
    loader.close_async_loader()
    assert not [thread for thread in threading.enumerate() if thread.name == "hvd-loader"]
    assert capsys.readouterr().out.startswith("AsyncNumbers: the loading thread starts\n")
    assert next(iter(loader)) == 0
    loader.close_async_loader()
    loader.close_async_loader()


def test_closing_ends_iterations_that_have_begun() -> None:
    loader = AsyncNumbers(2, False, 1000)
    begun = [iter(loader), iter(loader)]
    assert [next(batches) for batches in begun] == [0, 10]
    loader.close_async_loader()
    anew = iter(loader)
    assert next(anew) == 0
    left: list[int] = []
    ending = threading.Thread(target=lambda: left.extend(chain(*begun)), daemon=True)
    ending.start()
    ending.join(WAIT_S)
    assert not ending.is_alive()
    assert left == []
    assert next(anew) == 10
    loader.close_async_loader()


def test_closing_ends_an_iteration_that_waits_on_another_thread() -> None:
    taken = threading.Event()

    class Slow(AsyncNumbers):
        def _iterate(self) -> Iterator[int]:
            yield 0
            while self._async_ahead is not None:  # until it is being closed
                time.sleep(0.01)

        def _process_batch(self, batch: int) -> int:
            taken.set()
            return batch

    loader = Slow(1, False, 1)
    waiting = threading.Thread(target=lambda: list(loader), daemon=True)
    waiting.start()
    assert taken.wait(WAIT_S)
    loader.close_async_loader()
    waiting.join(WAIT_S)
    assert not waiting.is_alive()


def test_a_negative_queue_is_refused() -> None:
    with pytest.raises(ValueError, match="async_loader_queue_size is -1, expected 0 or more"):
        AsyncNumbers(-1, False, 3)
    with pytest.raises(TypeError):
        BaseDataLoader()  # type: ignore[abstract]
