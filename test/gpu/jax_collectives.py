"""One rank of the suite of horovod.jax, the tests of test/e2e/jax/ranks: `jax_collectives.py <device> <gpus>`. See run.py.

Compiled functions reduce GPU memory in place; calls at once go through the host.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import horovod.jax as hvd

TESTS = Path(__file__).resolve().parent.parent / "e2e" / "jax" / "ranks"


class Outcomes:
    """A plugin of pytest that counts what became of the tests."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.counts[report.outcome] += 1


def main() -> int:
    kind, gpus = sys.argv[1:]
    if limit := os.environ.get("HVD_GPU_SUITE_LIMIT"):
        faulthandler.dump_traceback_later(float(limit))
    jax: Any = importlib.import_module("jax")  # Any: its types differ between versions
    hvd.init()
    if kind == "cuda":
        jax.config.update("jax_cuda_visible_devices", str(hvd.local_rank() % int(gpus)))
    place = jax.devices()[0]
    assert place.platform == {"cuda": "gpu"}.get(kind, kind), place.platform
    first, outcomes = hvd.rank() == 0, Outcomes()
    code = pytest.main(
        ["-q", "-s", "-p", "no:cacheprovider", "--maxfail=8", "--durations=8", str(TESTS)], plugins=[outcomes]
    )
    if first:
        figures = {"jax": jax.__version__, "platform": f"{place.platform} {place.device_kind}", **outcomes.counts}
        print("RESULT " + json.dumps(figures), flush=True)
    return int(code)


sys.exit(main())
