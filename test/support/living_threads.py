"""How many threads this process has."""

from __future__ import annotations

import os
from pathlib import Path

_EXITING = 0x4  # PF_EXITING of the kernel


def living_threads() -> int:
    """Without those that are ending: the kernel shows one that has been joined for a moment longer."""
    count = 0
    for task in os.listdir("/proc/self/task"):
        try:
            fields = Path(f"/proc/self/task/{task}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        count += not int(fields[6]) & _EXITING
    return count
