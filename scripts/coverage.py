"""Prints which lines of the product its C++ tests ran: one row a folder, from what `ctest --preset coverage` has left.

Needs nothing but the gcov of the compiler that built build/coverage. A line that several programs compile counts as run
when one of them ran it. build/coverage/missed.txt has the lines that no test ran. Usage: coverage.py [BUILD_FOLDER]
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("runtime", "rendezvous", "launcher")
BATCH = 50  # counter files for one call of gcov

# File, relative to ROOT -> line -> how often it ran.
Lines = dict[str, dict[int, int]]


def reports(counters: list[Path]) -> Iterator[Any]:
    """What gcov says of each counter file, as parsed JSON."""
    for start in range(0, len(counters), BATCH):
        names = [str(path) for path in counters[start : start + BATCH]]
        done = subprocess.run(["gcov", "--json-format", "--stdout", *names], capture_output=True, text=True, check=True)
        for line in done.stdout.splitlines():
            if line.startswith("{"):
                yield json.loads(line)


def product_lines(found: Iterable[Any]) -> Lines:
    lines: Lines = defaultdict(lambda: defaultdict(int))
    for report in found:
        folder = Path(report["current_working_directory"])
        for file in report["files"]:
            path = (folder / file["file"]).resolve()
            if not path.is_relative_to(ROOT):
                continue
            name = str(path.relative_to(ROOT))
            if not name.startswith(tuple(f"{part}/" for part in PRODUCT)):
                continue
            for line in file["lines"]:
                lines[name][line["line_number"]] += line["count"]
    return lines


def table(lines: Lines) -> str:
    """Rows `folder  run of all  percent`, and the sum."""
    folders: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for name, counts in lines.items():
        for key in (str(Path(name).parent), "all"):
            folders[key][0] += sum(1 for count in counts.values() if count > 0)
            folders[key][1] += len(counts)
    order = sorted(folders, key=lambda key: (key == "all", key))
    rows = [
        f"{key:32} {folders[key][0]:6} of {folders[key][1]:6}  {folders[key][0] / folders[key][1]:6.1%}"
        for key in order
    ]
    return "\n".join(rows)


def missed(lines: Lines) -> str:
    return "".join(
        f"{name}:{number}\n" for name in sorted(lines) for number, count in sorted(lines[name].items()) if count == 0
    )


def main() -> int:
    build = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "coverage").resolve()
    counters = sorted(build.rglob("*.gcda"))
    if not counters:
        print(f"no counters (*.gcda) under {build}: run `ctest --preset coverage` first", file=sys.stderr)
        return 1
    lines = product_lines(reports(counters))
    (build / "missed.txt").write_text(missed(lines))
    print(table(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
