"""One rank of the comparison with torch's DistributedDataParallel: what a training step costs beyond a local one.

The gradients are those of a ResNet-50 in number and size (161 tensors, 102 MB), ready at once: nothing hides the
communication. Models take turns step by step: a local one, one with our DistributedOptimizer, one in DDP on gloo; then
the same with gradients that are kept from step to step and, but for the local one, are views of buckets.
Started by bench/run.py through horovodrun. Arguments: a directory (for torch's rendezvous file and the results of
rank 0), and the seconds per part.
"""

from __future__ import annotations

import runpy
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from together import finish, start, turns
from torch import nn

import horovod.torch as hvd

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "pytorch_synthetic_benchmark.py"
SMALL = 1000


class Give(torch.autograd.Function):
    """A loss whose gradients are given: backward computes nothing."""

    @staticmethod
    def forward(ctx: Any, gradients: list[torch.Tensor], *parameters: torch.Tensor) -> torch.Tensor:
        ctx.gradients = gradients
        return parameters[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> Any:
        return None, *ctx.gradients


class Model(nn.Module):
    """Parameters of given shapes. Its loss has gradients of rank + 1 in every element."""

    def __init__(self, shapes: list[torch.Size]) -> None:
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.zeros(shape)) for shape in shapes)
        self.gradients = [torch.full(shape, float(hvd.rank() + 1)) for shape in shapes]

    def forward(self) -> torch.Tensor:
        return Give.apply(self.gradients, *self.weights)


@dataclass(frozen=True)
class Contender:
    """One way to train. `keeps`: gradients are set to zero before a step, not to None, as views of buckets want it."""

    name: str
    keeps: bool
    views: bool = False


# The first of those that keep their gradients, and of those that do not, is the local one.
CONTENDERS = (
    Contender("local", keeps=False),
    Contender("ours", keeps=False),
    Contender("ddp", keeps=False),
    Contender("local_kept", keeps=True),
    Contender("ours_views", keeps=True, views=True),
    Contender("ddp_views", keeps=True, views=True),
)


def make_step(contender: Contender, shapes: list[torch.Size]) -> Callable[[], float]:
    """A training step; it gives the seconds that backward took. SystemExit if the gradients' average is wrong."""
    plain = Model(shapes)
    model: nn.Module = plain
    optimizer: Any = torch.optim.SGD(plain.parameters(), lr=1e-9)
    if contender.name.startswith("ours"):
        names = plain.named_parameters()
        optimizer = hvd.DistributedOptimizer(optimizer, names, gradient_as_bucket_view=contender.views)
    elif contender.name.startswith("ddp"):
        model = nn.parallel.DistributedDataParallel(plain, gradient_as_bucket_view=contender.views)

    def step() -> float:
        optimizer.zero_grad(set_to_none=not contender.keeps)
        loss = model()
        begin = time.perf_counter()
        loss.backward()
        seconds = time.perf_counter() - begin
        optimizer.step()
        return seconds

    expected = (hvd.size() + 1) / 2
    for _ in range(2):  # buckets are made at the end of the first step
        step()
        if not contender.name.startswith("local") and any(bool((p.grad != expected).any()) for p in plain.parameters()):
            raise SystemExit(f"{contender.name}: wrong average of the gradients")
    return step


def make_steps(shapes: list[torch.Size]) -> dict[str, Callable[[], float]]:
    """A step of each contender, by its name."""
    return {contender.name: make_step(contender, shapes) for contender in CONTENDERS}


def in_turns(steps: dict[str, Callable[[], float]], seconds: float) -> dict[str, dict[str, float]]:
    """Median milliseconds of a step, and of its backward alone."""
    whole: dict[str, list[float]] = {name: [] for name in steps}
    backward: dict[str, list[float]] = {name: [] for name in steps}
    for _ in turns(seconds, 10):
        for name, step in steps.items():
            dist.barrier()
            begin = time.perf_counter()
            backward[name].append(step() * 1e3)
            whole[name].append((time.perf_counter() - begin) * 1e3)
    return {
        name: {"step_ms": statistics.median(whole[name][2:]), "backward_ms": statistics.median(backward[name][2:])}
        for name in steps
    }


def hook_us() -> float:
    """Microseconds of wall time that the optimizer's hook takes for one parameter, enqueue included, on rank 0.

    The other ranks' turn comes after it: this measures the call, not how ranks share cores.
    """
    parameters = [nn.Parameter(torch.zeros(1)) for _ in range(SMALL)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=1e-9), op=hvd.Sum)
    hook = optimizer._reducer._hooks._hook
    samples = []
    for _ in range(30):
        for parameter in parameters:
            parameter.grad = torch.ones(1)
        for first in (True, False):
            dist.barrier()
            if first == (hvd.rank() == 0):
                begin = time.perf_counter()
                for parameter in parameters:
                    hook(parameter)
                samples.append((time.perf_counter() - begin) / SMALL * 1e6)
        optimizer.step()
    return statistics.median(samples[2:])


def start_with_shapes(directory: Path) -> list[torch.Size]:
    """Starts Horovod and torch.distributed; gives the shapes of ResNet-50's parameters."""
    start(f"{directory}/torch")
    models = runpy.run_path(str(EXAMPLE), run_name="models")["MODELS"]
    return [parameter.shape for parameter in models["resnet50"]().parameters()]


def main() -> None:
    directory, seconds = Path(sys.argv[1]), float(sys.argv[2])
    shapes = start_with_shapes(directory)
    results = {
        "tensors": len(shapes),
        "bytes": sum(shape.numel() for shape in shapes) * 4,
        "resnet50": in_turns(make_steps(shapes), seconds),
        "small": in_turns(make_steps([torch.Size([1])] * SMALL), seconds),
        "hook_us": hook_us(),
    }
    finish(directory, results)


if __name__ == "__main__":
    main()
