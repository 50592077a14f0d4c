"""The tables of docs/benchmarks.md and the numbers in their cells, for bench/figures.py and its test."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"
IMAGE = re.compile(r"\s*!\[(?P<title>[^]]+)\]\(figures/(?P<name>\w+)\.png\)$")
# What a unit measures, and how many of the smallest it is.
UNITS = {
    "": ("a number", 1.0),
    "x": ("a number", 1.0),
    "%": ("a share", 1.0),
    "µs": ("time", 1e-6),
    "ms": ("time", 1e-3),
    "s": ("time", 1.0),
    "B": ("bytes", 1.0),
    "kB": ("bytes", 1e3),
    "MB": ("bytes", 1e6),
}
NUMBER = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?: ?(?P<unit>x|%|µs|ms|s|kB|MB|B))?(?!\w)")
BETWEEN = re.compile(r", again |, | and | to | / ")


@dataclass(frozen=True)
class Table:
    """A table as it stands in the document; `title` and `name` are those of the picture right below it, if any."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    line: int
    title: str = ""
    name: str = ""

    def column(self, name: str) -> int:
        if name not in self.header:
            raise ValueError(f"the table in line {self.line} has no column {name!r}, expected one of {self.header}")
        return self.header.index(name)


@dataclass(frozen=True)
class Reading:
    """What a cell says: the median of its numbers, and the least and the most of them."""

    value: float
    low: float
    high: float


def _cells(line: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in line.strip().strip("|").split("|"))


def _header(line: str) -> tuple[str, ...]:
    """The second column of a name is called NAME#2."""
    cells = _cells(line)
    counts = [cells[: index + 1].count(cell) for index, cell in enumerate(cells)]
    return tuple(cell if count == 1 else f"{cell}#{count}" for cell, count in zip(cells, counts, strict=True))


def tables(text: str) -> Iterator[Table]:
    lines = text.splitlines()
    index = 0
    while index < len(lines):
        start = index
        while index < len(lines) and lines[index].lstrip().startswith("|"):
            index += 1
        if index - start > 2:
            below = next((line for line in lines[index:] if line.strip()), "")
            image = IMAGE.match(below)
            found = image.groupdict() if image else {}
            rows = tuple(_cells(line) for line in lines[start + 2 : index])
            yield Table(_header(lines[start]), rows, start + 1, **found)
        index = max(index, start + 1)


def _converted(number: str, unit: str, wanted: str) -> float:
    kind, factor = UNITS[unit]
    wanted_kind, wanted_factor = UNITS[wanted]
    if kind != wanted_kind:
        raise ValueError(f"{number} {unit} is {kind}, expected {wanted_kind}")
    return float(number) * factor / wanted_factor


def read(
    cell: str, unit: str, *, spread: bool = False, leading: bool = False, part: int | None = None
) -> Reading | None:
    """The numbers of a cell, in `unit`; those without a unit have that of the last one. None: the cell is empty.

    What stands in brackets counts with `spread` alone, and only for the least and the most. With `leading` words may
    follow the first number, which is all that counts. `part` picks one of several numbers.
    """
    text = re.sub(r"\*\*|: \*\*missed\*\*|missed", "", cell).strip().rstrip(":").lstrip("<>=+ ")
    if not text:
        return None
    if leading:
        first = NUMBER.match(text)
        found = [first] if first else [None]
    else:
        outside = re.sub(r"\s*\([^)]*\)", "", text)
        found = [NUMBER.fullmatch(piece.strip()) for piece in BETWEEN.split(outside)]
    matches = [match for match in found if match]
    if len(matches) != len(found):
        raise ValueError(f"{cell!r}: expected numbers with units or without, between them a comma, and, to or /")
    last = matches[-1]["unit"] or unit
    values = [_converted(match["number"], match["unit"] or last, unit) for match in matches]
    if part is not None:
        if part >= len(values):
            raise ValueError(f"{cell!r}: expected at least {part + 1} numbers")
        values = values[part : part + 1]
    around = list(values)
    if spread:
        inside = " ".join(re.findall(r"\(([^)]*)\)", text))
        around += [_converted(number, last, unit) for number in re.findall(r"\d+(?:\.\d+)?", inside)]
    return Reading(statistics.median(values), min(around), max(around))


def holds_numbers(table: Table) -> bool:
    """Whether a column beside the first, goals aside, has numbers of one quantity in at least half of its cells."""
    for index, name in enumerate(table.header):
        if index == 0 or name.startswith("goal"):
            continue
        for unit in UNITS:
            readable = 0
            for row in table.rows:
                try:
                    readable += read(row[index], unit) is not None
                except ValueError:
                    continue
            if 2 * readable >= len(table.rows):
                return True
    return False
