"""Horovod on Spark: a function on ranks that live in Spark tasks.

    import horovod.spark

    results = horovod.spark.run(train, args=(0.1,), num_proc=4)
"""

from __future__ import annotations

import importlib.util

if importlib.util.find_spec("pyspark") is None:
    raise ModuleNotFoundError(
        "horovod.spark needs pyspark, which is not installed here: `pip install pyspark`, in the version of your "
        "cluster's Spark. Without Spark, horovod.run() calls a function on ranks",
        name="pyspark",
    )

from horovod.spark._run import run, run_elastic

__all__ = ["run", "run_elastic"]
