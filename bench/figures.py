#!/usr/bin/env python3
"""Draws what bench/run.py measured: one picture for each table of docs/benchmarks.md.

pip install matplotlib
python bench/figures.py build/bench.json [more.json ...]    # writes docs/figures/*.png; later files win
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from report import IN_PLACE, size_name

mpl.use("Agg")
from matplotlib import pyplot as plt

FIGURES = Path(__file__).resolve().parent.parent / "docs" / "figures"
# Colours that colour-blind people tell apart (Okabe and Ito).
COLOURS = {
    "ours": "#0072B2",
    "Open MPI": "#D55E00",
    "torch gloo": "#E69F00",
    "torch DDP": "#E69F00",
    "stock Gloo": "#CC79A7",
    "bound": "#999999",
    "TensorFlow": "#E69F00",
    "torch": "#0072B2",
}


@dataclass(frozen=True)
class Bars:
    """A group of bars for each label, one bar for each series. `values[series][i]` belongs to `labels[i]`."""

    title: str
    unit: str
    labels: Sequence[str]
    values: dict[str, list[float]]
    logarithmic: bool = True


def short(value: float) -> str:
    return f"{value / 1000:.3g}k" if value >= 1000 else f"{value:.3g}"


def draw(bars: Bars, path: Path) -> None:
    figure, axes = plt.subplots(figsize=(max(6.4, 1.1 * len(bars.labels)), 3.6), layout="constrained")
    width = 0.8 / len(bars.values)
    for index, (series, values) in enumerate(bars.values.items()):
        places = [place + (index - (len(bars.values) - 1) / 2) * width for place in range(len(values))]
        drawn = axes.bar(places, values, width, label=series, color=COLOURS.get(series))
        axes.bar_label(drawn, fmt=short, fontsize=6)
    axes.set_xticks(range(len(bars.labels)), bars.labels, fontsize=8)
    axes.set_ylabel(bars.unit)
    axes.set_title(bars.title, fontsize=10)
    if bars.logarithmic:
        axes.set_yscale("log")
    if len(bars.values) > 1:
        axes.legend(fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def by_size(title: str, entries: list[dict[str, Any]], arms: dict[str, str]) -> Bars:
    """Microseconds of each arm, by size and number of ranks."""
    labels = [f"{size_name(entry['size'])}\nnp={entry['np']}" for entry in entries]
    return Bars(title, "µs", labels, {name: [e["p50_us"][arm] for e in entries] for arm, name in arms.items()})


def cpp(result: list[dict[str, Any]]) -> Bars:
    return by_size("allreduce in C++ over TCP", result, {"ours": "ours", "stock": "stock Gloo", "bound": "bound"})


def python(result: dict[str, Any]) -> Bars:
    return by_size("hvd.allreduce_ in Python", result["blocking"], {"ours": "ours", "torch": "torch gloo"})


def open_mpi(result: dict[str, Any]) -> Bars:
    arms = {"ours": "ours", "mpi": "Open MPI", "torch": "torch gloo"}
    return by_size("private tensors on one host, two cores", result["blocking"], arms)


def default_call(result: dict[str, Any]) -> Bars:
    names = list(result["sizes"][0]["arms"])
    values = {
        size_name(entry["size"]): [entry["arms"][name]["us"] / entry["arms"][IN_PLACE]["us"] for name in names]
        for entry in result["sizes"]
    }
    labels = [name.replace(", ", ",\n") for name in names]
    return Bars("large tensors, np=2", "time over the sum's in place", labels, values, logarithmic=False)


def training(result: dict[str, Any]) -> Bars:
    kinds = {"": ("local", "ours", "ddp"), ",\nviews of buckets": ("local_kept", "ours_views", "ddp_views")}
    values: dict[str, list[float]] = {"ours": [], "torch DDP": []}
    labels = []
    for key, name in (("resnet50", "ResNet-50's gradients"), ("small", "1000 x 4 B")):
        for how, arms in kinds.items():
            local, ours, ddp = (result[key][arm]["step_ms"] for arm in arms)
            labels.append(name + how)
            values["ours"].append(ours - local)
            values["torch DDP"].append(ddp - local)
    return Bars("a training step beyond a local one, np=2", "ms", labels, values, logarithmic=False)


def tensorflow(result: dict[str, Any]) -> Bars:
    us, ms, chain = result["single_us"], result["step_ms"], result["chain"]
    labels = [f"4 B, one of {chain}\nthat wait for each other, µs", "ResNet-50's gradients,\nbeyond a local step, ms"]
    values = {
        "TensorFlow": [(us["chain"] - us["empty_function"]) / chain, ms["tensorflow"] - ms["tensorflow_local"]],
        "torch": [us["torch_chain"] / chain, ms["ours"] - ms["local"]],
    }
    return Bars("in a tf.function and in PyTorch, np=2", "µs and ms", labels, values, logarithmic=False)


PICTURES: dict[str, Callable[[Any], Bars]] = {
    "cpp": cpp,
    "python": python,
    "open_mpi": open_mpi,
    "default_call": default_call,
    "torch_ddp": training,
    "tensorflow": tensorflow,
}


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    results: dict[str, Any] = {}
    for name in sys.argv[1:]:
        results |= json.loads(Path(name).read_text())["median"]
    FIGURES.mkdir(parents=True, exist_ok=True)
    for part, make in PICTURES.items():
        if part in results:
            path = FIGURES / f"{part}.png"
            draw(make(results[part]), path)
            print(path)
    return 0


sys.exit(main())
