"""Tests in this folder run on every rank of a job at once:

    horovodrun -np 2 python -m pytest -x test/e2e/torch/ranks

Without the launcher they run as a world of one rank. All ranks run the same tests in the same order; a rank that fails
ends (-x), which fails the others too instead of leaving them waiting.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

import horovod.torch as hvd
from rank_world import check_nothing_is_left, choose
from sets import DYNAMIC, start_again


@pytest.fixture(autouse=True)
def session() -> Iterator[None]:
    """An initialised Horovod. A test may shut it down; the next one starts it again."""
    hvd.init()
    torch.set_num_threads(1)
    yield
    check_nothing_is_left()
    torch.manual_seed(0)


@pytest.fixture
def world_as_it_was(request: pytest.FixtureRequest) -> Iterator[None]:
    """Ends every test with a session that has the global set only; one that failed, without waiting for others."""
    before = os.environ.pop(DYNAMIC, None)
    yield
    if request.session.testsfailed:
        hvd.shutdown()
        return
    os.environ.pop(DYNAMIC, None)
    if before is not None:
        os.environ[DYNAMIC] = before
    if not hvd.is_initialized():
        hvd.init()
    start_again()


@pytest.fixture
def one_host() -> None:
    """Marks a test of what only ranks of one host do."""


@pytest.fixture
def cpu_scaler() -> None:
    """Marks a test of torch.amp.GradScaler, which torch has since 2.3."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A world of one rank leaves out what needs more; test_ranks.py runs that on two and three."""
    missing = [] if hasattr(torch.amp, "GradScaler") else ["cpu_scaler"]
    if os.environ.get("HOROVOD_LOCAL_SIZE") != os.environ.get("HOROVOD_SIZE"):
        missing.append("one_host")
    choose(config, items, missing)
