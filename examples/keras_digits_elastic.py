"""Trains a small network on handwritten digits with Keras 3 while ranks die, come and go.

KERAS_BACKEND=torch horovodrun -np 2 --min-np 1 python examples/keras_digits_elastic.py
KERAS_BACKEND=torch horovodrun -np 1 --min-np 1 --max-np 3 --host-discovery-script 'cat hosts' \
    python examples/keras_digits_elastic.py
KERAS_BACKEND=torch horovodrun -np 2 python examples/keras_digits_elastic.py     # in a job that does not change

Kill a rank, or change what the discovery script prints: the others train on from the last epoch that all have done.
"""

from __future__ import annotations

import argparse
import sys
import time

import keras
import numpy as np
from keras_digits import WANTED_ACCURACY, load_data, make_model

import horovod.keras as hvd


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=32, help="images per rank and step")
    parser.add_argument("--lr", type=float, default=0.004, help="learning rate for one rank")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds after each epoch, to have time to interfere")
    arguments = parser.parse_args()

    hvd.init()
    keras.utils.set_random_seed(7 + hvd.rank())  # the state gives all ranks rank 0's variables
    train_x, test_x, train_y, test_y = load_data()
    model = make_model()
    model.compile(
        optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(arguments.lr)),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )

    @hvd.elastic.run
    def train_until_the_end(state: hvd.elastic.KerasState) -> None:
        model.optimizer.learning_rate = arguments.lr * hvd.size() ** 0.5  # more ranks make a larger batch
        print(f"rank {hvd.rank()} of {hvd.size()} begins at epoch {state.epoch}", flush=True)
        callbacks = [
            hvd.callbacks.MetricAverageCallback(),
            hvd.elastic.UpdateEpochStateCallback(state),
            hvd.elastic.CommitStateCallback(state, batches_per_commit=len(train_x)),  # at the end of an epoch alone
        ]
        while state.epoch < arguments.epochs:
            # The same order on all ranks; each has its part of it, and all the same number of steps.
            order = np.random.default_rng(state.epoch).permutation(len(train_x))
            own = order[: len(order) // hvd.size() * hvd.size()][hvd.rank() :: hvd.size()]
            model.fit(train_x[own], train_y[own], arguments.batch_size, epochs=1, callbacks=callbacks, verbose=0)
            if hvd.rank() == 0:
                print(f"epoch {state.epoch}/{arguments.epochs} is done", flush=True)
            time.sleep(arguments.pause)

    train_until_the_end(hvd.elastic.KerasState(model, epoch=0))

    _, accuracy = model.evaluate(test_x, test_y, verbose=0)
    weights = np.concatenate([weight.ravel() for weight in model.get_weights()])
    everybodys = keras.ops.convert_to_numpy(hvd.allgather(weights[None]))
    equal = bool((everybodys == weights).all())
    if hvd.rank() == 0:
        said = "bitwise equal weights" if equal else "DIFFERENT weights"
        print(
            f"{keras.backend.backend()}: test accuracy {accuracy:.4f} (wanted {WANTED_ACCURACY}); "
            f"all {hvd.size()} ranks hold {said}",
            flush=True,
        )
    hvd.shutdown()
    return 0 if equal and accuracy >= WANTED_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())
