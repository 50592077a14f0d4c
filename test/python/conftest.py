"""Fixtures of the unit tests: the Python package on a core that does what a test wants."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest

from fake_core import FakeCore, make_module


@dataclass
class Fake:
    """A fresh import of the package and the core under it."""

    core: FakeCore
    hvd: Any


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """What a session sets, HOROVOD_SIZE for one, is not there in the next test."""
    with mock.patch.dict(os.environ):
        yield


def _own_modules() -> list[str]:
    return [name for name in sys.modules if name == "horovod" or name.startswith("horovod.")]


@pytest.fixture
def fake_uninitialized() -> Iterator[Fake]:
    """horovod.torch, freshly imported on a fake core. The real modules come back afterwards."""
    before = {name: sys.modules.pop(name) for name in _own_modules()}
    core = FakeCore()
    try:
        sys.modules["horovod._core"] = make_module(core)
        yield Fake(core, importlib.import_module("horovod.torch"))
    finally:
        core.shutdown()
        for name in _own_modules():
            del sys.modules[name]
        sys.modules.update(before)


@pytest.fixture
def fake(fake_uninitialized: Fake) -> Iterator[Fake]:
    """The same, initialised, with one rank."""
    fake_uninitialized.hvd.init()
    yield fake_uninitialized
    fake_uninitialized.hvd.shutdown()


@pytest.fixture
def fake_pair(fake_uninitialized: Fake) -> Iterator[Fake]:
    """The same with two ranks, of which the other one never changes a result."""
    fake_uninitialized.core.world = 2
    fake_uninitialized.hvd.init()
    yield fake_uninitialized
    fake_uninitialized.hvd.shutdown()
