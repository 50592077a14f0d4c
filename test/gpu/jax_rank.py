"""One rank of the suite of Keras on JAX: `jax_rank.py <device> <mode> <gpus>`. Rank 0 prints figures. See run.py.

A step that JAX has compiled reduces its gradients by a custom call of XLA (docs/design/keras.md). One rank alone has
nothing to reduce and makes no call; here it does, so that the call is tried where NCCL works with a single GPU too.
"""

from __future__ import annotations

import faulthandler
import functools
import importlib
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import keras
import numpy as np

import horovod.keras as hvd
from horovod._common.native import core
from horovod._keras.jax_step import HostReduction
from horovod.bench import gpu
from horovod.common.exceptions import HorovodInternalError
from horovod.jax import _call
from horovod.jax._primitive import run as run_collective
from horovod.jax._work import Work

jax: Any = importlib.import_module("jax")  # Any: its types differ between versions

ROWS = 32  # of each rank, in each step
FEATURES = 16
TYPES = ("float32", "float16", "bfloat16", "int32", "int8", "uint8")
MIB = 1 << 20


class Calls:
    """Which way gradients go: how often a step was traced with the custom call, and what came to the host instead."""

    def __init__(self) -> None:
        self.traced, self.on_host = 0, 0
        module, reduction = cast(Any, _call), cast(Any, HostReduction)
        lower, on_host = module.lower, reduction._on_host

        def count_traced(*arguments: Any) -> Any:
            self.traced += 1
            return lower(*arguments)

        def count_on_host(*arguments: Any) -> Any:
            self.on_host += 1
            return on_host(*arguments)

        module.lower = count_traced
        reduction._on_host, reduction._several_ranks = count_on_host, lambda _: True


def reduce_in_step(name: str, groups: list[int], count: int, **options: Any) -> Callable[..., Any]:
    """A compiled function that makes one call: twice the sum of what it is given."""
    names = tuple(f"{name}.{i}" for i in range(len(groups) or count))

    def reduce(*given: Any) -> list[Any]:
        return run_collective(Work(core.OP_ALLREDUCE, names, tuple(groups), hvd.Sum, 2.0, 1.0), given)

    compiled: Callable[..., Any] = jax.jit(reduce, **options)
    return compiled


def call(kind: str, calls: Calls) -> dict[str, Any]:
    """The call by itself: its types, its groups, and memory of the program that it reduces in place."""
    problem = _call.problem()
    assert problem is None, problem
    place = jax.devices()[0]
    assert place.platform == {"cuda": "gpu"}.get(kind, kind), place.platform
    for dtype in TYPES:
        parts = [[np.arange(n) % 4 + rank for n in (1, 5, 3001)] for rank in range(hvd.size())]
        mine = [jax.numpy.asarray(part, dtype) for part in parts[hvd.rank()]]
        for groups in ([], [2, 1]):
            reduce = reduce_in_step(f"{dtype}.{len(groups)}", groups, len(mine), donate_argnums=(2,))
            results = reduce(*mine[:2], mine[2] + 0)
            for result, *whole in zip(results, *parts, strict=True):
                assert result.devices() == {place}, result.devices()
                got, what = np.asarray(result, "int64"), f"{dtype} in groups {groups}"
                np.testing.assert_array_equal(got, 2 * sum(whole), what)
    figures = {}
    for name, count in (("4B", 1), ("64MiB", 16 * MIB)):
        run = functools.partial(reduce_in_step(f"timed.{name}", [], 1), jax.numpy.zeros(count))
        figures[f"call_{name}_us"] = timed([run], 10)[0]
    return {"platform": f"{place.platform} {place.device_kind}", **figures}


def timed(runs: list[Callable[[], Any]], rounds: int) -> list[float]:
    """The median time of each, in µs, by turns, until the device is done."""
    times: list[list[float]] = [[] for _ in runs]
    for turn in range(rounds + 1):
        for run, own in zip(runs, times, strict=True):
            begin = time.perf_counter()
            jax.block_until_ready(run())
            if turn > 0:  # the first compiles
                own.append(time.perf_counter() - begin)
    return [round(sorted(own)[len(own) // 2] * 1e6, 1) for own in times]


def make_model(optimizer: Any, width: int, depth: int) -> Any:
    """All ranks begin with the same weights."""
    dense = keras.layers.Dense
    layers = [dense(width, activation="tanh") for _ in range(depth)]
    model = keras.Sequential([keras.layers.Input((FEATURES,)), *layers, dense(1)])
    generator = np.random.default_rng(1)
    model.set_weights([(generator.normal(size=w.shape) / len(w) ** 0.5).astype("float32") for w in model.get_weights()])
    model.compile(optimizer=optimizer, loss="mse")
    return model


def rows_of(ranks: range, steps: int) -> tuple[Any, Any]:
    """What these ranks train on: in each step the rows of one after another."""
    x = np.stack([np.random.default_rng(100 + rank).normal(size=(steps, ROWS, FEATURES)) for rank in ranks], axis=1)
    y = x.sum(axis=-1, keepdims=True) + np.arange(ranks.start, ranks.stop)[:, None, None]
    return tuple(part.reshape(-1, part.shape[-1]).astype("float32") for part in (x, y))  # type: ignore[return-value]


def fit(model: Any, data: tuple[Any, Any], rows: int) -> Any:
    return model.fit(*data, batch_size=rows, shuffle=False, verbose=0)


def own_rows(steps: int) -> tuple[Any, Any]:
    return rows_of(range(hvd.rank(), hvd.rank() + 1), steps)


def sgd() -> Any:
    return keras.optimizers.SGD(0.02, momentum=0.9)


def check_equal_everywhere(model: Any) -> None:
    """Every bit of the weights is the same on all ranks."""
    mine = np.frombuffer(b"".join(np.asarray(w).tobytes() for w in model.get_weights()), np.uint8)
    for rank, theirs in enumerate(np.asarray(hvd.allgather(mine[None]))):
        assert np.array_equal(mine, theirs), f"ranks {hvd.rank()} and {rank} have other weights"


def training(kind: str, calls: Calls) -> dict[str, Any]:
    """fit() ends with the weights of one process that was given the rows of all ranks, without Horovod."""
    steps = 20
    model = make_model(hvd.DistributedOptimizer(sgd()), 32, 2)
    begin, traced = model.get_weights(), calls.traced
    reference = make_model(sgd(), 32, 2)
    with jax.default_matmul_precision("highest"):  # else a GPU rounds what it multiplies
        fit(model, own_rows(steps), ROWS)
        fit(reference, rows_of(range(hvd.size()), steps), ROWS * hvd.size())
    assert calls.traced > traced, "the step was traced without the custom call"
    assert calls.on_host == 0, f"{calls.on_host} calls came to the host"
    check_equal_everywhere(model)
    for own, expected in zip(model.get_weights(), reference.get_weights(), strict=True):
        np.testing.assert_allclose(own, expected, rtol=1e-3, atol=1e-4)
    moved = max(float(np.abs(own - before).max()) for own, before in zip(model.get_weights(), begin, strict=True))
    assert moved > 0.01, moved
    return {"steps": steps}


def times(kind: str, calls: Calls) -> dict[str, Any]:
    """A step of fit() with Horovod and without it, which costs what its gradients cost beside what Keras does."""
    width, depth, steps = (1024, 8, 30) if kind == "cuda" else (64, 2, 20)
    models = [make_model(sgd(), width, depth), make_model(hvd.DistributedOptimizer(sgd()), width, depth)]
    data = own_rows(steps)
    plain, ours = timed([functools.partial(fit, model, data, ROWS) for model in models], 5)
    bytes_of_gradients = sum(weight.nbytes for weight in models[1].get_weights())
    per_step = {"step_plain_us": plain / steps, "step_horovod_us": ours / steps, "step_more_us": (ours - plain) / steps}
    return {"gradients_MB": round(bytes_of_gradients / 1e6, 2), **{name: round(us, 1) for name, us in per_step.items()}}


def events(kind: str, calls: Calls) -> dict[str, Any]:
    """The core itself says what it did in a step that never came to Python: each gradient, on the GPU."""
    model = make_model(hvd.DistributedOptimizer(sgd()), 32, 2)
    steps, gradients = 5, len(model.get_weights())
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "timeline.json"
        hvd.start_timeline(str(file))
        fit(model, own_rows(steps), ROWS)
        hvd.stop_timeline()
        if hvd.rank() > 0:
            return {}
        seen = [event for event in json.loads(file.read_text()) if event]
    lines = {e["pid"] for e in seen if e.get("name") == "process_name" and ".grad_" in e["args"].get("name", "")}
    began = [event["name"] for event in seen if event["ph"] == "B" and event.get("pid") in lines]
    assert began.count("ALLREDUCE") == steps * gradients, sorted(set(began))
    ways = {name for name in began if name.endswith("_ALLREDUCE")} - {"NEGOTIATE_ALLREDUCE"}
    if kind == "cuda":
        assert ways == {"GPU_ALLREDUCE"}, ways
        assert began.count("GPU_ALLREDUCE") >= steps * gradients, began.count("GPU_ALLREDUCE")
    assert calls.on_host == 0, f"{calls.on_host} calls came to the host"
    return {"reduced": began.count("ALLREDUCE"), "ways": sorted(ways)}


def refusal(kind: str, calls: Calls) -> dict[str, Any]:
    """What ranks disagree on is raised by fit(), and training goes on."""
    if hvd.size() > 1:
        model = make_model(hvd.DistributedOptimizer(sgd()), 4 + hvd.rank(), 1)
        told = ""
        try:
            fit(model, own_rows(1), ROWS)
        except HorovodInternalError as error:
            told = str(error)
        assert "Mismatched tensor shapes" in told, f"ranks have other shapes, and were told {told!r}"
    return training(kind, calls)


def main() -> None:
    kind, mode, gpus = sys.argv[1:]
    if limit := os.environ.get("HVD_GPU_SUITE_LIMIT"):
        faulthandler.dump_traceback_later(float(limit))
    gpu.begin(hvd, mode)
    if kind == "cuda":
        jax.config.update("jax_cuda_visible_devices", str(hvd.local_rank() % int(gpus)))
    calls = Calls()
    result: dict[str, Any] = {"jax": jax.__version__, "keras": keras.__version__}
    problems = []
    for part in (call, training, times, refusal, events):
        try:
            result |= part(kind, calls)
        except Exception:  # the figures of the others are worth having
            problems.append(f"{part.__name__}: {traceback.format_exc()}")
            break
    if hvd.rank() == 0:
        print("RESULT " + json.dumps({**result, "nccl": hvd.nccl_built()}), flush=True)
    hvd.shutdown()
    if problems:
        sys.exit("\n".join(problems))


main()
