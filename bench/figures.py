#!/usr/bin/env python3
"""Draws the tables of docs/benchmarks.md into docs/figures/*.png, so that a figure shows what the document says.

pip install matplotlib
python bench/figures.py [NAME ...]    # all, or some of those in bench/figure_specs.py

A table has a figure when a column beside the first, goals aside, has numbers of one quantity in at least half of its
cells (`holds_numbers`), or when each row's number comes first in its cell (`Panel.leading`). Tables of sentences,
which programs there are, or goals that several runs on several machines met or missed, have none.

The image right below a table names its figure, and its alternative text is the title. Where a cell has several numbers
the height is their median, and a thin line reaches from the least to the most.
"""

from __future__ import annotations

import io
import sys
import textwrap
from pathlib import Path

import matplotlib as mpl
from document_tables import DOCUMENT, Reading, Table, tables
from figure_data import Data, Panel, extract, size_of
from figure_specs import FIGURES
from PIL import Image

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

FOLDER = DOCUMENT.parent / "figures"
# Colours that colour-blind people tell apart (Okabe and Ito); a contender has the same one everywhere.
PALETTE = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442"]
COLOURS = {
    "ours": "#0072B2",
    "now": "#0072B2",
    "before": "#BBBBBB",
    "ours, before": "#BBBBBB",
    "in a row, before": "#BBBBBB",
    "in a row, now": "#0072B2",
    "in turns, before": "#DDCC99",
    "in turns, now": "#E69F00",
    "Open MPI": "#D55E00",
    "MPICH": "#009E73",
    "torch gloo": "#E69F00",
    "torch DDP": "#E69F00",
    "stock Gloo": "#CC79A7",
    "bound": "#777777",
}
MARKS = ("#000000", "#D55E00")
WIDEST = 12.0  # inches; panels that need more together stand below each other
COLOURS_KEPT = 48  # with a palette a file takes half as much


def short(value: float) -> str:
    for letter, factor in (("M", 1e6), ("k", 1e3)):
        if value >= factor:
            return f"{value / factor:.3g}{letter}"
    return f"{value:.3g}"


def wrapped(label: str) -> str:
    return "\n".join(textwrap.fill(line, 16, break_long_words=False) for line in label.split("\n"))


def colour(name: str, index: int) -> str:
    return COLOURS.get(name, PALETTE[index % len(PALETTE)])


def width_of(panel: Panel, data: Data) -> float:
    return 5.0 if panel.lines else max(3.6, 0.8 + len(data.labels) * max(1.15, 0.1 + 0.27 * len(data.series)))


def whiskers(readings: list[Reading]) -> list[list[float]]:
    return [[r.value - r.low for r in readings], [r.high - r.value for r in readings]]


def draw_bars(axes: Axes, data: Data) -> None:
    width = 0.84 / len(data.series)
    for index, (name, readings) in enumerate(data.series.items()):
        shift = (index - (len(data.series) - 1) / 2) * width
        there = [(place + shift, reading) for place, reading in enumerate(readings) if reading]
        values = [reading for _, reading in there]
        drawn = axes.bar(
            [place for place, _ in there],
            [reading.value for reading in values],
            width,
            label=name,
            color=colour(name, index),
            yerr=whiskers(values) if any(r.low < r.high for r in values) else None,
            error_kw={"elinewidth": 0.8, "ecolor": "#333333"},
        )
        behind = {"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.3}
        axes.bar_label(drawn, fmt=short, fontsize=6, padding=1, bbox=behind, zorder=5)
    for mark_colour, (name, readings) in zip(MARKS, data.marks.items(), strict=False):
        places = [place for place, reading in enumerate(readings) if reading]
        heights = [reading.value for reading in readings if reading]
        left, right = [place - 0.46 for place in places], [place + 0.46 for place in places]
        axes.hlines(heights, left, right, colors=mark_colour, linestyles="dashed", linewidth=1.2, label=name)
    axes.set_xticks(range(len(data.labels)), [wrapped(label) for label in data.labels], fontsize=7)


def draw_lines(axes: Axes, data: Data) -> None:
    sizes = [size_of(label) for label in data.labels]
    for index, (name, readings) in enumerate(data.series.items()):
        there = [(size, reading) for size, reading in zip(sizes, readings, strict=True) if reading]
        values = [reading.value for _, reading in there]
        axes.plot([size for size, _ in there], values, "o-", markersize=3, label=name, color=colour(name, index))
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, data.labels, fontsize=7, rotation=30)
    axes.set_xticks([], minor=True)
    axes.set_xlabel("size", fontsize=8)


def draw_panel(axes: Axes, panel: Panel, data: Data) -> None:
    if panel.lines:
        draw_lines(axes, data)
    else:
        draw_bars(axes, data)
    shown = [reading for readings in (data.series | data.marks).values() for reading in readings if reading]
    highest = max(reading.high for reading in shown)
    if panel.logarithmic:
        axes.set_yscale("log")
        axes.set_ylim(top=1.7 * highest)  # room for the highest one's label
    else:
        axes.set_ylim(0, 1.1 * highest)
    if panel.equal:
        axes.axhline(1, color="#777777", linewidth=0.9, label=f"1: {panel.equal}")
    axes.set_ylabel(panel.axis, fontsize=8)
    axes.tick_params(axis="y", labelsize=7)
    if len(data.series) + len(data.marks) > 1 or panel.equal:
        # Above the axes it covers nothing.
        place = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "frameon": False}
        columns = 5 if sum(map(len, [*data.series, *data.marks, panel.equal])) < 60 else 3
        axes.legend(title=panel.title, title_fontsize=8, fontsize=7, ncols=columns, **place)


def draw(table: Table, panels: tuple[Panel, ...], path: Path) -> None:
    data = [extract(panel, table) for panel in panels]
    widths = [width_of(panel, shown) for panel, shown in zip(panels, data, strict=True)]
    beside = sum(widths) <= WIDEST
    rows, columns = (1, len(panels)) if beside else (len(panels), 1)
    size = (sum(widths) if beside else max(widths), 3.5 if beside else 2.8 * len(panels))
    ratios = widths if beside else [1.0]
    figure, grid = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False, width_ratios=ratios)
    for axes, panel, shown in zip(grid.flat, panels, data, strict=True):
        draw_panel(axes, panel, shown)
    figure.suptitle(textwrap.fill(table.title, int(11 * size[0])), fontsize=10)
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=90, metadata={"Software": None})
    plt.close(figure)
    Image.open(drawn).convert("RGB").quantize(COLOURS_KEPT).save(path, optimize=True)


def main() -> int:
    wanted = sys.argv[1:] or list(FIGURES)
    if unknown := set(wanted) - set(FIGURES):
        print(f"no such figures: {', '.join(sorted(unknown))}; expected {', '.join(FIGURES)}", file=sys.stderr)
        return 2
    named = {table.name: table for table in tables(DOCUMENT.read_text()) if table.name}
    FOLDER.mkdir(exist_ok=True)
    for name in wanted:
        if name not in named:
            print(f"{DOCUMENT} has no ![TITLE](figures/{name}.png) right below a table", file=sys.stderr)
            return 1
        draw(named[name], FIGURES[name], FOLDER / f"{name}.png")
    return 0


sys.exit(main())
