"""Tests in this folder run on every rank of a job at once:

    horovodrun -np 2 python -m pytest -x test/e2e/torch/ranks

Without the launcher they run as a world of one rank. All ranks run the same tests in the same order; a rank that fails
ends (-x), which fails the others too instead of leaving them waiting.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import horovod.torch as hvd


@pytest.fixture(autouse=True)
def session() -> Iterator[None]:
    """An initialised Horovod. A test may shut it down; the next one starts it again."""
    hvd.init()
    torch.set_num_threads(1)
    yield
    torch.manual_seed(0)


@pytest.fixture
def several_ranks() -> None:
    if hvd.size() == 1:
        pytest.skip("needs more than one rank")
