"""Tests in this folder run on every rank of a job at once.

    HVD_RANK_TESTS=1 JAX_ENABLE_X64=1 HOROVOD_DYNAMIC_PROCESS_SETS=1 horovodrun -np 2 python -m pytest -x test/e2e/jax/ranks

test_jax_ranks.py starts them; collected without HVD_RANK_TESTS they are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rank_world import LEFT_OUT, check_nothing_is_left, choose

collect_ignore_glob = LEFT_OUT


@pytest.fixture(autouse=True)
def session() -> Iterator[None]:
    """An initialised Horovod."""
    import horovod.jax as hvd

    hvd.init()
    yield
    check_nothing_is_left()


@pytest.fixture(params=["at once", "compiled"])
def way(request: pytest.FixtureRequest) -> Any:
    """How a test makes its call."""
    from jax_world import WAYS

    return WAYS[request.param]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what does not fit the number of ranks."""
    choose(config, items)
