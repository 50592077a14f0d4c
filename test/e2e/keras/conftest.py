"""Tests of processes with Keras."""

from __future__ import annotations

import pytest

from jobs import without


@pytest.fixture(autouse=True)
def quick_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test starts imports Keras in two thirds of the time."""
    monkeypatch.setenv("PYTHONPATH", without("sklearn"))
