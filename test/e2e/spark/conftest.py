"""Collected only where pyspark is installed: `make test-spark` has an environment for that."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark import SparkContext

_spec = importlib.util.find_spec("pyspark")
collect_ignore_glob = [] if _spec is not None and _spec.origin is not None else ["*"]


@pytest.fixture(scope="module")
def event_logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("events")


@pytest.fixture
def store(tmp_path: Path) -> Any:
    """An empty store of estimators."""
    from horovod.spark.common.store import Store

    return Store.create(str(tmp_path / "store"))


@pytest.fixture(scope="module")
def spark(request: pytest.FixtureRequest, event_logs: Path) -> Iterator[SparkContext]:
    """One real application for the tests of a module, on four cores of this host or on what MASTER there says."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable  # for the executors, which take the first python3 of PATH
    options = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": event_logs.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.speculation": "false",
    }
    builder = SparkSession.builder.master(getattr(request.module, "MASTER", "local[4]"))
    for name, value in options.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("FATAL")
    yield session.sparkContext
    session.stop()
