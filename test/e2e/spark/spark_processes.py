"""Finding and waiting for the processes of a job on Spark."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from jobs import eventually

START_S = 150.0  # of Spark, too, on a busy machine


def soon(condition: Callable[[], bool], what: str, deadline_s: float = 40.0) -> None:
    """As eventually(), but for what must not last until something gives up by itself."""
    eventually(condition, what, deadline_s)


def command_line(pid: int) -> str:
    """What the process runs, "" once it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def ancestors(pid: int) -> list[int]:
    """The processes above this one, the nearest first."""
    found = []
    while pid > 1:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        pid = int(fields[1])
        found.append(pid)
    return found


def descendants(pid: int) -> list[int]:
    """The processes below this one that run now."""
    below: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            parent = int(entry.read_text().rpartition(")")[2].split()[1])
            below.setdefault(parent, []).append(int(entry.parent.name))
    found, left = [], [pid]
    while left:
        children = below.get(left.pop(), [])
        found += children
        left += children
    return found


class Marks:
    """Files by which ranks tell a test that they run: each has its process id."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def wait_for(self, ranks: int) -> list[int]:
        """Their process ids, in rank order, once all of them run."""
        files = [self.folder / f"rank{rank}" for rank in range(ranks)]
        is_there = lambda file: file.exists() and file.read_text().endswith(".")  # noqa: E731
        soon(lambda: all(map(is_there, files)), f"{ranks} ranks run", START_S)
        return [int(file.read_text()[:-1]) for file in files]


def assert_gone(pids: list[int]) -> None:
    soon(lambda: not any(command_line(pid) for pid in pids), f"no process is left of {pids}")
