"""Tests in this folder run on every rank of a job at once.

    HVD_RANK_TESTS=1 HOROVOD_DYNAMIC_PROCESS_SETS=1 horovodrun -np 2 python -m pytest -x test/e2e/mxnet/ranks

test_mxnet_ranks.py starts them; collected without HVD_RANK_TESTS they are left out.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rank_world import LEFT_OUT, check_nothing_is_left, choose

collect_ignore_glob = LEFT_OUT


@pytest.fixture(autouse=True)
def session() -> Iterator[None]:
    """An initialised Horovod, and nothing in MXNet's engine at the end."""
    import horovod.mxnet as hvd
    from horovod import _core

    hvd.init()
    yield
    _core.mxnet_wait_for_calls()
    check_nothing_is_left()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what does not fit the number of ranks."""
    choose(config, items)
