"""The examples do what their README says."""

from __future__ import annotations

import sys

from jobs import run_to_end


def test_the_digits_train_in_spark_tasks() -> None:
    job = run_to_end([sys.executable, "examples/spark_digits.py", "--num-proc", "2"])
    assert job.code == 0, job.text
    assert "all 2 ranks have the same" in job.out
    assert "[0]<stdout>:epoch 10/10: loss " in job.out


def test_an_estimator_trains_on_the_digits_of_a_dataframe() -> None:
    job = run_to_end([sys.executable, "examples/spark_estimator_digits.py", "--num-proc", "2"])
    assert job.code == 0, job.text
    assert "[0]<stdout>:epoch 10/10: train loss " in job.out
    assert "test accuracy 0.9" in job.out
