"""Tests of processes with TensorFlow."""

from __future__ import annotations

import pytest

from jobs import without


@pytest.fixture(autouse=True)
def quick_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test starts imports TensorFlow in two thirds of the time."""
    monkeypatch.setenv("PYTHONPATH", without("jax", "sklearn"))
