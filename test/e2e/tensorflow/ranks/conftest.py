"""Tests in this folder run on every rank of a job at once:

    horovodrun -np 2 python -m pytest -x test/e2e/tensorflow/ranks

Without the launcher they run as a world of one rank. A rank that fails ends (-x), which fails the others too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

import horovod.tensorflow as hvd
from rank_world import check_nothing_is_left, choose


@pytest.fixture(autouse=True)
def session() -> Iterator[None]:
    """An initialised Horovod. A test may shut it down; the next one starts it again."""
    hvd.init()
    tf.random.set_seed(5)
    yield
    check_nothing_is_left()


@pytest.fixture
def xla() -> None:
    """Marks a test that needs a TensorFlow whose XLA compiles our collectives."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A world of one rank leaves out what needs more; test_tf_ranks.py runs that on two and three."""
    has_xla = tuple(map(int, tf.__version__.split(".")[:2])) >= (2, 18)
    choose(config, items, missing=[] if has_xla else ["xla"])
