"""Trains a small network on handwritten digits on a Ray cluster; without one, on a Ray that it starts on this machine.

python examples/ray_digits.py --workers 2
python examples/ray_digits.py --workers 2 --max-workers 4     # elastic: nodes may come and go
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import ray
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from horovod.ray import RayExecutor, ray_logger

WANTED_ACCURACY = 0.95


def load_data() -> Any:
    """The 1797 digits that come with scikit-learn; a quarter is held out for the test."""
    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32) / 16.0
    labels = torch.tensor(digits.target)
    return train_test_split(images, labels, test_size=0.25, random_state=1, stratify=labels)


def train(epochs: int, batch_size: int, lr: float) -> tuple[int, int, float]:
    """What each rank does: its number, how many there were at the end, and the accuracy on the test images."""
    import horovod.torch as hvd

    hvd.init()
    torch.manual_seed(7)
    torch.set_num_threads(1)
    train_x, test_x, train_y, test_y = load_data()
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    # With the fixed ranks of a static job this calls the function once; in an elastic one it does so after each change.
    @hvd.elastic.run
    def loop(state: Any) -> None:
        for state.epoch in range(state.epoch, epochs):  # noqa: B020
            own = slice(hvd.rank(), None, hvd.size())
            rows = len(train_x) // hvd.size()  # the same on all ranks: so is the number of steps
            x, y = train_x[own][:rows], train_y[own][:rows]
            order = torch.randperm(rows, generator=torch.Generator().manual_seed(state.epoch))
            for batch in order.split(batch_size):
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(x[batch]), y[batch])
                loss.backward()
                optimizer.step()
            mean = hvd.allreduce(loss.detach(), name="loss")
            ray_logger.log({"epoch": state.epoch + 1, "loss": mean.item()})
            state.commit()

    loop(hvd.elastic.TorchState(model=model, optimizer=optimizer, epoch=0))
    accuracy = (model(test_x).argmax(dim=1) == test_y).float().mean().item()
    return hvd.rank(), hvd.size(), accuracy


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--address", help="as ray.init() takes it; default: a cluster that runs here, else a new one")
    parser.add_argument("--workers", type=int, default=2, help="ranks; with --max-workers the fewest")
    parser.add_argument("--max-workers", type=int, help="the most ranks; the job is elastic then")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=32, help="images per rank and step")
    parser.add_argument("--lr", type=float, default=0.004)
    arguments = parser.parse_args()

    ray.init(arguments.address, include_dashboard=False if arguments.address == "local" else None)
    if arguments.max_workers is None:
        number = {"num_workers": arguments.workers}
    else:
        number = {"min_workers": arguments.workers, "max_workers": arguments.max_workers}
    executor = RayExecutor(RayExecutor.create_settings(timeout_s=120), **number)
    executor.start()

    def show(value: dict[str, Any]) -> None:
        print(f"epoch {value['epoch']}/{arguments.epochs}: loss {value['loss']:.4f}", flush=True)

    results = executor.run(train, [arguments.epochs, arguments.batch_size, arguments.lr], callbacks=[show])
    executor.shutdown()
    accuracies = {accuracy for _, _, accuracy in results}
    accuracy = min(accuracies)
    said = "the same" if len(accuracies) == 1 else "NOT the same"
    print(f"ray: test accuracy {accuracy:.4f} (wanted {WANTED_ACCURACY}), {said} on all {len(results)} ranks")
    return 0 if len(accuracies) == 1 and accuracy >= WANTED_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())
