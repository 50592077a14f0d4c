"""The example does what its README says."""

from __future__ import annotations

import sys

from jobs import run_to_end


def test_the_digits_train_in_spark_tasks() -> None:
    job = run_to_end([sys.executable, "examples/spark_digits.py", "--num-proc", "2"])
    assert job.code == 0, job.text
    assert "all 2 ranks have the same" in job.out
    assert "[0]<stdout>:epoch 10/10: loss " in job.out
