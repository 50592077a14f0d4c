"""Trains a small network on handwritten digits while ranks come and go.

    horovodrun -np 2 --min-np 1 python examples/pytorch_digits_elastic.py
    horovodrun -np 1 --min-np 1 --max-np 3 --host-discovery-script 'cat hosts' python examples/pytorch_digits_elastic.py
    horovodrun -np 2 python examples/pytorch_digits_elastic.py      # the same script in a job that does not change

Kill a rank, or change what the discovery script prints: the others train on, with what they had at their last commit.
"""

from __future__ import annotations

import argparse
import sys
import time

import torch
from pytorch_digits import WANTED_ACCURACY, DigitNet, load_data, parameters_are_equal, test_accuracy
from torch.nn import functional
from torch.utils.data import DataLoader

import horovod.torch as hvd


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32, help="images per rank and step")
    parser.add_argument("--total-batch", type=int, help="instead: images per step of all ranks, whatever their number")
    parser.add_argument("--lr", type=float, default=0.005, help="learning rate for one rank")
    parser.add_argument("--batches-per-commit", type=int, default=5)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds after each batch, to have time to interfere")
    arguments = parser.parse_args()

    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(7)

    train, test = load_data()
    sampler = hvd.elastic.ElasticSampler(train)
    loader = DataLoader(train, batch_size=arguments.batch_size, sampler=sampler)
    model = DigitNet()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.Adam(model.parameters(), lr=arguments.lr), named_parameters=model.named_parameters()
    )

    @hvd.elastic.run
    def train_until_the_end(state: hvd.elastic.TorchState) -> None:
        batch_size = arguments.batch_size
        if arguments.total_batch:
            batch_size = hvd.elastic.keep_batch_size(loader, arguments.total_batch)
        else:
            hvd.elastic.scale_learning_rate(optimizer, power=0.5)  # more ranks make a larger batch
        place = f"epoch {state.epoch}, batch {state.batch}, {batch_size} images"
        print(f"rank {hvd.rank()} of {hvd.size()} begins at {place}", flush=True)
        while state.epoch < arguments.epochs:
            model.train()
            for index, (images, labels) in enumerate(loader):
                optimizer.zero_grad()
                functional.cross_entropy(model(images), labels).backward()
                optimizer.step()
                sampler.record_batch(index, batch_size)
                state.batch += 1
                time.sleep(arguments.pause)
                if state.batch % arguments.batches_per_commit == 0:
                    state.commit()
            state.epoch += 1
            state.batch = 0
            sampler.set_epoch(state.epoch)
            state.commit()
            accuracy = test_accuracy(model, test)
            if hvd.rank() == 0:
                print(f"epoch {state.epoch}/{arguments.epochs}: test accuracy {accuracy:.4f}", flush=True)

    train_until_the_end(hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0, batch=0))

    accuracy, equal = test_accuracy(model, test), parameters_are_equal(model)
    if hvd.rank() == 0:
        said = "bitwise equal parameters" if equal else "DIFFERENT parameters"
        print(
            f"test accuracy {accuracy:.4f} (wanted {WANTED_ACCURACY}); all {hvd.size()} ranks hold {said}", flush=True
        )
    hvd.shutdown()
    return 0 if equal and accuracy >= WANTED_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())
