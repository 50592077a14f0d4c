"""torch.compile leaves the package alone, whichever of the two is imported first."""

from __future__ import annotations

import sys

import pytest

from jobs import run_to_end

ASK = """
import os, torch._dynamo.trace_rules as rules, horovod
print(rules.check_file(os.path.join(os.path.dirname(horovod.__file__), "torch", "_allreduce.py")).skipped)
"""


@pytest.mark.parametrize("first", ["import horovod.torch, torch._dynamo", "import torch._dynamo, horovod.torch"])
def test_our_files_are_skipped(first: str) -> None:
    job = run_to_end([sys.executable, "-c", f"{first}\n{ASK}"])
    assert job.out.split()[-1:] == ["True"], job.text


def test_without_us_they_would_not_be() -> None:
    job = run_to_end([sys.executable, "-c", ASK])
    assert job.out.split()[-1:] == ["False"], job.text
