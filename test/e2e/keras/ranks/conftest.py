"""Tests in this folder run on every rank of a job at once, on the backend that KERAS_BACKEND names.

    KERAS_BACKEND=jax horovodrun -np 2 python -m pytest -x test/e2e/keras/ranks

test_keras_ranks.py starts them; collected without KERAS_BACKEND they are left out. Other frameworks cannot be imported
here: the module must do without them, whatever is installed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import PathFinder
from typing import Any

import pytest

from rank_world import check_nothing_is_left, choose

BACKEND = os.environ.get("KERAS_BACKEND", "")
OTHERS = {
    "tensorflow": ("torch", "jax"),
    "torch": ("tensorflow", "tf_keras", "jax"),
    "jax": ("tensorflow", "tf_keras", "torch"),
}

collect_ignore_glob = [] if BACKEND in OTHERS else ["*"]
pytest.register_assert_rewrite("keras_face", "keras_callbacks", "keras_mistakes", "keras_saving", "keras_elastic")


class _Hiding:
    """A finder of modules that does not find the frameworks: they look as if they were not installed."""

    def __init__(self, finder: Any, names: Sequence[str]) -> None:
        self._finder = finder
        self._names = names

    def find_spec(self, fullname: str, *where: Any) -> Any:
        hidden = fullname.partition(".")[0] in self._names
        return None if hidden else self._finder.find_spec(fullname, *where)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._finder, name)


if BACKEND in OTHERS:
    sys.meta_path[:] = [_Hiding(one, OTHERS[BACKEND]) if one is PathFinder else one for one in sys.meta_path]
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # compiling is most of the time


@pytest.fixture(autouse=True)
def session() -> Iterator[None]:
    """An initialised Horovod, and ranks that draw different numbers."""
    import keras

    import horovod.keras as hvd

    hvd.init()
    keras.utils.set_random_seed(11 + hvd.rank())
    yield
    check_nothing_is_left()


@pytest.fixture(scope="session")
def face() -> Any:
    """The package keras, with horovod.keras."""
    import keras

    import horovod.keras as hvd
    from keras_face import Face

    return Face(keras, hvd)


@pytest.fixture
def on_jax() -> None:
    """Marks a test of what only JAX has."""


@pytest.fixture
def not_on_tensorflow() -> None:
    """Marks a test of what torch and JAX have in common."""


@pytest.fixture
def not_on_jax() -> None:
    """Marks a test of what JAX does not have."""


@pytest.fixture
def on_torch() -> None:
    """Marks a test of what only torch has."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what does not fit the backend or the number of ranks."""
    others = {f"on_{name}" for name in OTHERS if name != BACKEND}
    choose(config, items, missing={*others, f"not_on_{BACKEND}"})
