"""The figures of docs/benchmarks.md: each shows columns that the table above it has. Nothing is drawn here."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[3] / "bench"))

from document_tables import DOCUMENT, Reading, holds_numbers, read, tables
from figure_data import Panel, extract, size_of
from figure_specs import FIGURES

TEXT = DOCUMENT.read_text()
TABLES = list(tables(TEXT))
PICTURED = {table.name: table for table in TABLES if table.name}


def test_every_image_stands_right_below_its_table_and_every_file_is_shown() -> None:
    shown = re.findall(r"!\[[^]]+\]\(figures/(\w+)\.png\)", TEXT)
    assert shown == list(FIGURES) == list(PICTURED)
    assert sorted(path.name for path in (DOCUMENT.parent / "figures").iterdir()) == sorted(f"{n}.png" for n in shown)
    assert all(table.title for table in PICTURED.values())


def test_every_table_with_a_column_of_numbers_has_a_figure() -> None:
    without = [table.header for table in TABLES if not table.name]
    assert len(TABLES) > len(without) > 0
    assert [table.header for table in TABLES if holds_numbers(table) and not table.name] == []


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_finds_its_columns_and_plausible_numbers(name: str) -> None:
    for panel in FIGURES[name]:
        data = extract(panel, PICTURED[name])
        assert len(data.labels) > 1
        for readings in data.series.values():
            assert len(readings) == len(data.labels)
            assert any(readings)
        found = [r for readings in (data.series | data.marks).values() for r in readings if r]
        for reading in found:
            assert math.isfinite(reading.value)
            assert 0 <= reading.low <= reading.value <= reading.high < 1e7, reading
            assert reading.value > 0 or not panel.logarithmic, f"{reading} has no logarithm"
        if panel.lines:
            sizes = [size_of(label) for label in data.labels]
            assert sizes == sorted(sizes)


def test_cells_are_read_as_they_are_written() -> None:
    assert read("2.5 ms (10.0 GB/s)", "ms") == Reading(2.5, 2.5, 2.5)
    assert read("**82**", "ms") == Reading(82, 82, 82)
    assert read("1.05 **missed**", "") == Reading(1.05, 1.05, 1.05)
    assert read(">= 2.0: **missed**", "") == Reading(2, 2, 2)
    assert read("34.4 (13.1), 30.4 (10.9), 34.9 (12.8) ms", "ms") == Reading(34.4, 30.4, 34.9)
    assert read("143 and 152", "ms") == Reading(147.5, 143, 152)
    assert read("104 (92, 104, 110)", "ms", spread=True) == Reading(104, 92, 110)
    assert read("0.45, 0.67", "", part=1) == Reading(0.67, 0.67, 0.67)
    assert read("983 µs; an empty function 612 µs", "µs", leading=True) == Reading(983, 983, 983)
    assert read("", "ms") is None


def test_cells_that_cannot_be_drawn_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'1\.9 before, 0 now': expected numbers"):
        read("1.9 before, 0 now", "")
    with pytest.raises(ValueError, match="5 kB is bytes, expected time"):
        read("5 kB", "ms")
    with pytest.raises(ValueError, match="expected at least 2 numbers"):
        read("0.45", "", part=1)
    table = PICTURED["tls"]
    with pytest.raises(ValueError, match="no column 'speed', expected one of"):
        extract(Panel("", "", {"ours": "speed"}), table)
    with pytest.raises(ValueError, match="no row begins as"):
        extract(Panel("", "", {"ours": "4 B"}, where={"size": "speed"}), table)
