"""Collected only where Keras is installed."""

from __future__ import annotations

import importlib.util

import pytest

from jobs import without

_spec = importlib.util.find_spec("keras")
# A folder called keras on the path, this one for example, is a namespace package without an origin.
collect_ignore_glob = [] if _spec is not None and _spec.origin is not None else ["*"]


@pytest.fixture(autouse=True)
def quick_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test starts imports Keras in two thirds of the time."""
    monkeypatch.setenv("PYTHONPATH", without("sklearn"))
