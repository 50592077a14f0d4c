"""Measures training speed on random images: images per second of each rank and of all together.

    horovodrun -np 2 python examples/pytorch_synthetic_benchmark.py --batch-size 8 --num-iters 3

Each rank trains on the GPU of its local rank if it sees one, else on the CPU. The default model has the shape of
ResNet-50 (25.6 million parameters in 161 tensors), written here so that nothing is downloaded.
"""

from __future__ import annotations

import argparse
import statistics
import timeit
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

import horovod.torch as hvd

CLASSES = 1000


class Bottleneck(nn.Module):
    """The residual block of the deeper ResNets: 1x1, 3x3 and 1x1 convolutions around a shortcut."""

    widening = 4

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        out = width * self.widening
        self.body = nn.Sequential(
            nn.Conv2d(channels, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, out, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != out:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, out, 1, stride=stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.body(x) + self.shortcut(x))


class ResNet(nn.Module):
    """A ResNet of bottleneck blocks; `depths` are the number of blocks of its four stages."""

    def __init__(self, depths: tuple[int, int, int, int]) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        channels = 64
        stages = []
        for stage, depth in enumerate(depths):
            width = 64 * 2**stage
            for block in range(depth):
                stride = 2 if stage > 0 and block == 0 else 1
                stages.append(Bottleneck(channels, width, stride))
                channels = width * Bottleneck.widening
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(channels, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.stages(self.stem(images)).mean(dim=(2, 3)))


class SmallNet(nn.Module):
    """A network that takes no time: what is measured then is the cost of the framework and of Horovod."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.AdaptiveAvgPool2d(8), nn.Flatten(), nn.Linear(192, 64), nn.ReLU())
        self.head = nn.Linear(64, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(images))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "resnet50": lambda: ResNet((3, 4, 6, 3)),
    "resnet101": lambda: ResNet((3, 4, 23, 3)),
    "small": SmallNet,
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients as float16")
    parser.add_argument("--model", choices=sorted(MODELS), default="resnet50")
    parser.add_argument("--batch-size", type=int, default=32, help="images per rank and step")
    parser.add_argument("--image-size", type=int, default=224, help="height and width of the images")
    parser.add_argument("--num-warmup-batches", type=int, default=10, help="steps before measuring")
    parser.add_argument("--num-batches-per-iter", type=int, default=10, help="steps per measurement")
    parser.add_argument("--num-iters", type=int, default=10, help="measurements")
    parser.add_argument("--no-cuda", action="store_true", help="on the CPU, also where there is a GPU")
    parser.add_argument("--fp16", action="store_true", help="compute in float16 (CPU: bfloat16) where that is safe")
    parser.add_argument("--use-adasum", action="store_true", help="reduce gradients with Adasum")
    return parser.parse_args()


def device_of_this_rank(no_cuda: bool) -> torch.device:
    """A GPU for each rank. Where each sees its own alone (CUDA_VISIBLE_DEVICES), that is number 0 for all."""
    if no_cuda or not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", hvd.local_rank() % torch.cuda.device_count())
    torch.cuda.set_device(device)  # before anything else touches a GPU
    return device


def log(text: str) -> None:
    if hvd.rank() == 0:
        print(text, flush=True)


def main() -> None:
    arguments = parse_arguments()
    hvd.init()
    torch.manual_seed(42)
    device = device_of_this_rank(arguments.no_cuda)
    kind = "GPU" if device.type == "cuda" else "CPU"

    model = MODELS[arguments.model]().to(device)
    compression = hvd.Compression.fp16 if arguments.fp16_allreduce else hvd.Compression.none
    # Averaged gradients allow a learning rate that grows with the number of ranks; Adasum scales by itself.
    lr_scaler = 1 if arguments.use_adasum else hvd.size()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01 * lr_scaler),
        named_parameters=model.named_parameters(),
        compression=compression,
        op=hvd.Adasum if arguments.use_adasum else hvd.Average,
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    images = torch.randn(arguments.batch_size, 3, arguments.image_size, arguments.image_size, device=device)
    labels = torch.randint(CLASSES, (arguments.batch_size,), device=device)
    half = torch.float16 if device.type == "cuda" else torch.bfloat16
    # float16 has too few exponents for gradients: they are scaled up until the step.
    scaler = torch.amp.GradScaler(device.type, enabled=True) if arguments.fp16 and device.type == "cuda" else None

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=half, enabled=arguments.fp16):
            loss = functional.cross_entropy(model(images), labels)
        if scaler is None:
            loss.backward()
            optimizer.step()
            return
        scaler.scale(loss).backward()
        optimizer.synchronize()  # the scaler looks at the gradients of all ranks
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()

    def steps(number: int) -> float:
        """Seconds. On a GPU a step has only been submitted when step() returns."""
        seconds = timeit.timeit(step, number=number)
        if device.type != "cuda":
            return seconds
        return seconds + timeit.timeit(lambda: torch.cuda.synchronize(device), number=1)

    log(f"Model: {arguments.model}, {sum(p.numel() for p in model.parameters()):,} parameters")
    log(f"Batch size: {arguments.batch_size}")
    log(f"Number of {kind} ranks: {hvd.size()}")
    log("Running warmup...")
    steps(arguments.num_warmup_batches)

    log("Running benchmark...")
    speeds = []
    for iteration in range(arguments.num_iters):
        seconds = steps(arguments.num_batches_per_iter)
        speeds.append(arguments.batch_size * arguments.num_batches_per_iter / seconds)
        log(f"Iter #{iteration}: {speeds[-1]:.1f} img/sec per {kind} rank")

    mean = statistics.fmean(speeds)
    spread = 1.96 * statistics.pstdev(speeds)
    everybodys = hvd.allgather(torch.tensor([[mean, spread]], dtype=torch.float64), name="speeds")
    total_spread = everybodys[:, 1].square().sum().sqrt()  # ranks vary independently
    log(f"Img/sec per {kind} rank: {mean:.1f} +-{spread:.1f}")
    log(f"Total img/sec on {hvd.size()} {kind} rank(s): {everybodys[:, 0].sum():.1f} +-{total_spread:.1f}")


if __name__ == "__main__":
    main()
