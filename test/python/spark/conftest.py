"""What horovod.spark has that needs no Spark: tested without pyspark, whose name alone is there."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def pyspark_name(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty pyspark, unless there is one: its names are for annotations and for what these tests do not call."""
    before = {name for name in sys.modules if name.startswith("horovod.spark")}
    if importlib.util.find_spec("pyspark") is None:
        module: Any = ModuleType("pyspark")
        module.__spec__ = importlib.util.spec_from_loader("pyspark", None)
        module.SparkContext = module.SparkFiles = module.TaskContext = module.InheritableThread = object
        monkeypatch.setitem(sys.modules, "pyspark", module)
    yield
    for name in [name for name in sys.modules if name.startswith("horovod.spark")]:
        if name not in before:
            del sys.modules[name]
