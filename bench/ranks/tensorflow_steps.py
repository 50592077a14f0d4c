"""One rank of the comparison of TensorFlow with PyTorch, both through Horovod and in turns in the same processes.

Single allreduces of 4 bytes: one op in a tf.function, fifty that depend on each other in one function, and torch's
blocking call. Then training steps with the gradients of a ResNet-50 (see resnet50_gradients.py): in a tf.function with
DistributedGradientTape, and with torch's DistributedOptimizer, each with its local counterpart. Started by bench/run.py
through horovodrun. Arguments: a directory (for torch's rendezvous file and the results of rank 0), and the seconds per
part.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import allreduce as single
import resnet50_gradients as torch_steps
import tensorflow as tf
import torch
from together import finish

import horovod.tensorflow as hvd
import horovod.torch

CHAIN = 50


def single_op(seconds: float) -> dict[str, float]:
    """Median microseconds of each way to reduce 4 bytes."""
    value, tensor = tf.ones([1]), torch.ones(1)

    @tf.function
    def one(x: Any) -> Any:
        return hvd.allreduce(x, op=hvd.Sum, name="one")

    @tf.function
    def chain(x: Any) -> Any:
        for i in range(CHAIN):
            x = hvd.allreduce(x, op=hvd.Average, name=f"chain{i}")
        return x

    @tf.function
    def nothing(x: Any) -> Any:
        return tf.identity(x)

    def torch_chain() -> Any:
        x = tensor
        for i in range(CHAIN):
            x = horovod.torch.allreduce(x, op=hvd.Average, name=f"torch_chain{i}")
        return x

    if float(one(value)[0]) != hvd.size() or float(chain(value)[0]) != 1.0:
        raise SystemExit("wrong sum in a tf.function")
    arms: dict[str, Callable[[], object]] = {
        "function": lambda: one(value),
        "chain": lambda: chain(value),
        "empty_function": lambda: nothing(value),
        "torch": lambda: horovod.torch.allreduce(tensor, op=hvd.Sum, name="torch"),
        "torch_chain": torch_chain,
    }
    return single.in_turns(arms, lambda: None, seconds)


def tensorflow_steps(shapes: list[list[int]]) -> dict[str, Callable[[], float]]:
    """A step without and with Horovod. Its gradients are rank + 1 in every element, and made anew in every step."""
    variables = [tf.Variable(tf.zeros(shape)) for shape in shapes]
    value = tf.Variable(float(hvd.rank() + 1))

    @tf.custom_gradient
    def loss(*weights: Any) -> Any:
        return tf.zeros([]), lambda _, variables=None: [tf.fill(w.shape, value.read_value()) for w in weights]

    def make(wrap: Callable[[Any], Any]) -> tuple[Callable[[], float], Callable[[], Any]]:
        def gradients() -> Any:
            with wrap(tf.GradientTape()) as tape:
                made = loss(*[variable.read_value() for variable in variables])
            return tape.gradient(made, variables)

        @tf.function
        def step() -> None:
            for variable, gradient in zip(variables, gradients(), strict=True):
                variable.assign_sub(1e-9 * gradient)

        def timed() -> float:
            step()
            return 0.0

        return timed, tf.function(lambda: [g[(0,) * g.shape.rank] for g in gradients()])

    local, _ = make(lambda tape: tape)
    ours, reduced = make(hvd.DistributedGradientTape)
    if any(float(g) != (hvd.size() + 1) / 2 for g in reduced()):
        raise SystemExit("wrong average of TensorFlow's gradients")
    return {"tensorflow_local": local, "tensorflow": ours}


def main() -> None:
    directory, seconds = Path(sys.argv[1]), float(sys.argv[2])
    tf.config.threading.set_intra_op_parallelism_threads(1)
    shapes = torch_steps.start_with_shapes(directory)
    steps = {name: step for name, step in torch_steps.make_steps(shapes).items() if name in ("local", "ours")}
    steps.update(tensorflow_steps([list(shape) for shape in shapes]))
    for step in steps.values():
        step()
    results = {
        "single_us": single_op(seconds),
        "chain": CHAIN,
        "step_ms": {name: times["step_ms"] for name, times in torch_steps.in_turns(steps, seconds).items()},
    }
    finish(directory, results)


main()
