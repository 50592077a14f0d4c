"""Trains the network of pytorch_digits.py in Spark tasks, one rank in each.

    spark-submit --master 'local[2]' examples/spark_digits.py
    python examples/spark_digits.py --num-proc 2          # Spark on this host
"""

from __future__ import annotations

import argparse
import os
import sys

from pyspark.sql import SparkSession

import horovod.spark

WANTED_ACCURACY = 0.9


def train(epochs: int, learning_rate: float) -> float:
    """On every rank: the accuracy on held-out digits, which is the same on all."""
    import torch
    from sklearn.datasets import load_digits

    import horovod.torch as hvd

    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(7 + hvd.rank())
    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32) / 16.0
    labels = torch.tensor(digits.target)
    held_out = torch.arange(len(labels)) % 4 == 0
    mine = torch.nonzero(~held_out).flatten()[hvd.rank() :: hvd.size()]

    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    steps = len(labels[~held_out]) // (32 * hvd.size())  # the same on all ranks
    for epoch in range(epochs):
        order = mine[torch.randperm(len(mine))]
        for step in range(steps):
            batch = order[32 * step : 32 * (step + 1)]
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
        mean_loss = hvd.allreduce(loss.detach(), name="loss").item()
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}/{epochs}: loss {mean_loss:.4f}", flush=True)
    with torch.no_grad():
        right = model(images[held_out]).argmax(dim=1) == labels[held_out]
    hvd.shutdown()
    return right.float().mean().item()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num-proc", type=int, help="ranks; default: spark.default.parallelism")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.003)
    arguments = parser.parse_args()

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # of executors on this host
    builder = SparkSession.builder.appName("digits")
    if "SPARK_ENV_LOADED" not in os.environ:  # not from spark-submit, which names a master
        builder = builder.master(f"local[{arguments.num_proc or '*'}]")
    session = builder.getOrCreate()
    accuracies = horovod.spark.run(train, (arguments.epochs, arguments.lr), num_proc=arguments.num_proc)
    session.stop()
    equal = len(set(accuracies)) == 1
    said = "the same" if equal else "DIFFERENT ones"
    print(f"test accuracy {accuracies[0]:.4f} (wanted {WANTED_ACCURACY}); all {len(accuracies)} ranks have {said}")
    return 0 if equal and accuracies[0] >= WANTED_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())
