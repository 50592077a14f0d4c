"""What a measured time says of the links between GPUs, as nccl-tests defines it; lists of sizes, files of figures."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

__all__ = ["OPERATIONS", "Row", "bus_factor", "size_of", "sizes_of", "write_figures"]

# The bytes of a call are the tensor's (allreduce, broadcast), all ranks' together (allgather), or those that are
# scattered or sent to all (reducescatter, alltoall).
OPERATIONS = ("allreduce", "allgather", "broadcast", "reducescatter", "alltoall")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def bus_factor(operation: str, ranks: int) -> float:
    """busbw / algbw of nccl-tests."""
    if operation == "broadcast":
        return 1.0
    share = (ranks - 1) / ranks
    return 2 * share if operation == "allreduce" else share


def write_figures(file: Path, figures: dict[str, object]) -> None:
    """As JSON; makes the folder where it is missing, for it is asked for after minutes of measuring."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(figures, indent=1) + "\n")


def size_of(text: str) -> int:
    """The bytes that a text such as 4, 16K or 1G says."""
    unit = _UNITS.get(text[-1:].upper(), 1)
    number = text if unit == 1 else text[:-1]
    if not number.isdigit() or int(number) == 0:
        raise argparse.ArgumentTypeError(f"expected bytes such as 4, 16K or 1G, got {text!r}")
    return int(number) * unit


def sizes_of(text: str) -> list[int]:
    """Of `begin:end:factor`, each the factor times the one before; or of a list `4,1K,1M`."""
    parts = text.split(":")
    if len(parts) == 1:
        return [size_of(part) for part in text.split(",")]
    if len(parts) != 3 or not parts[2].isdigit() or int(parts[2]) < 2:
        raise argparse.ArgumentTypeError(f"expected BEGIN:END:FACTOR such as 4:1G:4, or a list of sizes, got {text!r}")
    size, end, factor = size_of(parts[0]), size_of(parts[1]), int(parts[2])
    sizes = []
    while size <= end:
        sizes.append(size)
        size *= factor
    return sizes


@dataclass(frozen=True)
class Row:
    """One operation of one size in one mode (gpu.MODES): the mean over its calls and over ranks."""

    mode: str
    operation: str
    bytes: int
    time_us: float
    ranks: int

    @property
    def algbw(self) -> float:
        """GB/s (10^9 bytes)."""
        return self.bytes / self.time_us / 1e3

    @property
    def busbw(self) -> float:
        return self.algbw * bus_factor(self.operation, self.ranks)

    def as_json(self) -> dict[str, object]:
        return {
            "mode": self.mode, "operation": self.operation, "bytes": self.bytes, "time_us": round(self.time_us, 2),
            "algbw_GBps": round(self.algbw, 4), "busbw_GBps": round(self.busbw, 4),
        }  # fmt: skip
