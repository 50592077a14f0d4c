"""torch.compile leaves the package alone, whichever of the two is imported first."""

from __future__ import annotations

import sys

import pytest

from jobs import run_to_end

ASK = """
import os, torch._dynamo.trace_rules as rules, horovod
ask = lambda: print(rules.check_file(os.path.join(os.path.dirname(horovod.__file__), "torch", "_allreduce.py")).skipped)
"""
US_FIRST = f"import horovod.torch\n{ASK}\nask()"
THEM_FIRST = f"{ASK}\nask()\nimport horovod.torch\nask()"


@pytest.mark.parametrize(("script", "skipped"), [(US_FIRST, ["True"]), (THEM_FIRST, ["False", "True"])])
def test_our_files_are_skipped_once_we_are_imported(script: str, skipped: list[str]) -> None:
    job = run_to_end([sys.executable, "-c", script])
    assert job.out.split() == skipped, job.text
