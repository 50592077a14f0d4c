"""Tests in this folder run on every rank of a job at once; test_lightning.py starts them. A rank that fails ends (-x),
which fails the others too instead of leaving them waiting.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rank_world import LEFT_OUT, check_nothing_is_left, choose

collect_ignore_glob = LEFT_OUT


@pytest.fixture(autouse=True)
def session() -> Iterator[None]:
    """An initialised Horovod, and other random numbers on each rank."""
    import torch

    import horovod.torch as hvd

    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(100 + hvd.rank())
    yield
    check_nothing_is_left()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One folder for all ranks."""
    import horovod.torch as hvd

    return Path(hvd.broadcast_object(str(tmp_path), 0))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    choose(config, items)
