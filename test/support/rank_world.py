"""What the conftests of the folders ranks/ share: which tests a world of this size runs, and what none may leave behind.

All ranks of a job run the same tests in the same order, one world for the whole folder. `two_ranks` marks modules that
two ranks prove enough for `make test`; `make test-slow` runs them on one and three as well (HVD_EVERY_SIZE=1).

A job of rank tests has HVD_RANK_TESTS=1 (jobs.py). Folders that make no sense without one are left out elsewhere.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from horovod import _core

SIZE = int(os.environ.get("HOROVOD_SIZE", "1"))
EVERY_SIZE = os.environ.get("HVD_EVERY_SIZE") == "1"
REDUCTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "Sum": sum,
    "Min": lambda arrays: np.min(arrays, axis=0),
    "Max": lambda arrays: np.max(arrays, axis=0),
    "Product": lambda arrays: np.prod(arrays, axis=0),
}
LEFT_OUT = [] if os.environ.get("HVD_RANK_TESTS") == "1" else ["*"]  # for collect_ignore_glob


# What tracing leaves is many objects that live on: looking for garbage among them, as often as Python does by default, is
# an eighth of the processor time of Keras' tests.
gc.set_threshold(200_000, 50, 100)


def choose(config: pytest.Config, items: list[pytest.Item], missing: Iterable[str] = ()) -> None:
    """Leaves out the tests that ask for a fixture in `missing`, or for more ranks than there are, or for two."""
    unmet = {*missing, *(["several_ranks"] if SIZE == 1 else [])}

    def fits(item: pytest.Item) -> bool:
        if unmet & set(getattr(item, "fixturenames", ())):
            return False
        return SIZE == 2 or EVERY_SIZE or item.get_closest_marker("two_ranks") is None

    config.hook.pytest_deselected(items=[item for item in items if not fits(item)])
    items[:] = [item for item in items if fits(item)]


def comes_true(condition: Callable[[], bool]) -> bool:
    """Whether it does in half a minute."""
    end = time.monotonic() + 30
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    return condition()


def check_nothing_is_left(sets_too: bool = True) -> None:
    """The session a test leaves to the next one holds no operation and no process set. A session that ended is fine."""
    if not _core.is_initialized():
        return
    left = _core.pending_operations()
    assert not left, f"the test left operations pending: {left}"
    sets = {number: ranks for number, ranks in _core.process_sets().items() if number != 0}
    assert not (sets_too and sets), f"the test left process sets: {sets}"


def array_of(rank: int, dtype: str = "float32", shape: tuple[int, ...] = (4, 3)) -> Any:
    """Small whole numbers, which every type holds, sums of three ranks too; others on each rank."""
    return (np.arange(np.prod(shape)).reshape(shape) % 7 + 3 * rank + 1).astype(dtype)


def everybodys(dtype: str = "float32", shape: tuple[int, ...] = (4, 3)) -> list[Any]:
    """In double precision."""
    return [array_of(rank, dtype, shape).astype(np.float64) for rank in range(_core.size())]


def assert_values(made: Any, expected: Any, dtype: str) -> None:
    assert made.dtype == np.dtype(dtype)
    assert made.shape == np.shape(expected)
    np.testing.assert_array_equal(made.astype(np.float64), expected)
