"""What a panel of a figure shows, and how it comes from a table. bench/figure_specs.py lists the panels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from document_tables import Reading, Table, read

SIZES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}
LABELS = {"np": "np={}", "MiB": "{} MiB"}  # columns whose cells do not say what they are


@dataclass(frozen=True)
class Panel:
    """One pair of axes. `series` and `marks` name columns: {what the legend says: the column}."""

    axis: str  # what the axis says
    unit: str  # in which the numbers are drawn; that of cells that have none
    series: Mapping[str, str]
    marks: Mapping[str, str] = field(default_factory=dict)  # goals and bounds: a line across each group of bars
    title: str = ""
    labels: tuple[str, ...] = ()  # the columns that name a row; without them the first
    where: Mapping[str, str] = field(default_factory=dict)  # {column: how its cells in the rows to draw begin}
    equal: str = ""  # what 1 stands for, which gets a line
    logarithmic: bool = False
    lines: bool = False  # over sizes, instead of bars
    turned: bool = False  # columns are groups, and rows are series
    spread: bool = False  # numbers in brackets are others of the same measurement
    leading: bool = False  # words may follow a cell's number
    part: int | None = None  # which of a cell's numbers, where each has a meaning of its own


@dataclass(frozen=True)
class Data:
    """`series[name][i]` belongs to `labels[i]`, and so do the marks."""

    labels: list[str]
    series: dict[str, list[Reading | None]]
    marks: dict[str, list[Reading | None]]


def size_of(label: str) -> int:
    found = re.fullmatch(r"(\d+) (B|KiB|MiB)", label)
    if not found:
        raise ValueError(f"{label!r}: expected a size, as 4 B, 64 KiB or 16 MiB")
    return int(found[1]) * SIZES[found[2]]


def _plain(cell: str) -> str:
    return re.sub(r"[*`]", "", cell)


def _labels(panel: Panel, table: Table) -> list[str]:
    """One for each row. An empty cell means the one above."""
    columns = [table.column(name) for name in panel.labels or table.header[:1]]
    last = dict.fromkeys(columns, "")
    labels = []
    for row in table.rows:
        last = {index: _plain(row[index]) or last[index] for index in columns}
        labels.append("\n".join(LABELS.get(table.header[index], "{}").format(text) for index, text in last.items()))
    return labels


def extract(panel: Panel, table: Table) -> Data:
    wanted = {table.column(name): start for name, start in panel.where.items()}
    chosen = [
        (label, row)
        for label, row in zip(_labels(panel, table), table.rows, strict=True)
        if all(re.match(start, _plain(row[index])) for index, start in wanted.items())
    ]
    if not chosen:
        raise ValueError(f"the table in line {table.line}: no row begins as {dict(panel.where)} says")

    def column(name: str) -> list[Reading | None]:
        options = {"spread": panel.spread, "leading": panel.leading}
        return [read(row[table.column(name)], panel.unit, part=panel.part, **options) for _, row in chosen]

    labels = [label for label, _ in chosen]
    series = {legend: column(name) for legend, name in panel.series.items()}
    if panel.turned:
        series, labels = {label: [series[s][i] for s in series] for i, label in enumerate(labels)}, list(series)
    # A goal is one number, with or without those that the series have in brackets.
    return Data(labels, series, {legend: column(name) for legend, name in panel.marks.items()})
