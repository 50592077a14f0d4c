"""Trains a network on a DataFrame of digits by TorchEstimator, and adds its predictions to another DataFrame.

    spark-submit --master 'local[2]' examples/spark_estimator_digits.py --store /tmp/digits
    python examples/spark_estimator_digits.py --num-proc 2          # Spark on this host, a store that is removed
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile

import torch
from pyspark.ml.linalg import Vectors
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from sklearn.datasets import load_digits

from horovod.spark.common.store import Store
from horovod.spark.torch import TorchEstimator

WANTED_ACCURACY = 0.9


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num-proc", type=int, help="ranks; default: spark.default.parallelism")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--store", help="a folder that all hosts share")
    arguments = parser.parse_args()

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # of executors on this host
    builder = SparkSession.builder.appName("digits")
    if "SPARK_ENV_LOADED" not in os.environ:  # not from spark-submit, which names a master
        builder = builder.master(f"local[{arguments.num_proc or '*'}]")
    session = builder.getOrCreate()

    digits = load_digits()
    rows = [(Vectors.dense(image / 16.0), int(digit)) for image, digit in zip(digits.data, digits.target, strict=True)]
    train, test = session.createDataFrame(rows, ["pixels", "digit"]).randomSplit([0.75, 0.25], seed=7)

    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    with tempfile.TemporaryDirectory() as folder:
        estimator = TorchEstimator(
            num_proc=arguments.num_proc,
            store=Store.create(arguments.store or folder),
            model=model,
            optimizer=torch.optim.Adam(model.parameters(), lr=0.003),
            loss=torch.nn.CrossEntropyLoss(),
            feature_cols=["pixels"],
            label_cols=["digit"],
            validation=0.1,
            random_seed=7,
            epochs=arguments.epochs,
        )
        trained = estimator.fit(train)
    best = F.udf(lambda scores: int(scores.argmax()), "int")
    predicted = trained.transform(test).withColumn("guess", best("digit__output"))
    accuracy = predicted.select(F.avg((F.col("guess") == F.col("digit")).cast("double"))).first()[0]
    session.stop()
    print(f"test accuracy {accuracy:.4f} (wanted {WANTED_ACCURACY})")
    return 0 if accuracy >= WANTED_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())
