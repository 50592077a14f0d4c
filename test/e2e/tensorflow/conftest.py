"""Collected only where TensorFlow is installed: `make test-tensorflow` installs it."""

from __future__ import annotations

import importlib.util

import pytest

from jobs import without

_spec = importlib.util.find_spec("tensorflow")
# A folder called tensorflow on the path, this one for example, is a namespace package without an origin.
collect_ignore_glob = [] if _spec is not None and _spec.origin is not None else ["*"]


@pytest.fixture(autouse=True)
def quick_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test starts imports TensorFlow in two thirds of the time."""
    monkeypatch.setenv("PYTHONPATH", without("jax", "sklearn"))
