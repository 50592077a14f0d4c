"""What measured links say: who meets whom, which are slow, what a training step may lose by them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["Link", "Step", "host_names", "rounds_of", "slow_among"]

_SLOW = 0.5  # of what the fastest quarter of its kind has: below this a link is pointed at


@dataclass(frozen=True)
class Link:
    """From one host to another; of one host with itself, between two of its ranks."""

    source: str
    target: str
    small_us: float  # an allreduce of 4 bytes by both ends
    bytes_per_s: float  # from source to target, while nothing goes back

    @property
    def is_inside(self) -> bool:
        return self.source == self.target

    def __str__(self) -> str:
        return f"inside {self.source}" if self.is_inside else f"{self.source} -> {self.target}"

    def as_json(self) -> dict[str, object]:
        return {
            "from": self.source, "to": self.target, "small_us": round(self.small_us, 2),
            "GBps": round(self.bytes_per_s / 1e9, 4),
        }  # fmt: skip


@dataclass(frozen=True)
class Step:
    """A training step that takes `alone_ms` on one rank, and whose gradients take `reduction_ms` to reduce."""

    alone_ms: float
    reduction_ms: float

    @property
    def worst_ms(self) -> float:
        """Nothing of the reduction goes on beside the computation."""
        return self.alone_ms + self.reduction_ms

    @property
    def best_ms(self) -> float:
        """All that can does."""
        return max(self.alone_ms, self.reduction_ms)

    def as_json(self) -> dict[str, object]:
        return {
            "alone_ms": self.alone_ms, "best_ms": round(self.best_ms, 2), "worst_ms": round(self.worst_ms, 2),
            "best_efficiency": round(self.alone_ms / self.best_ms, 4),
            "worst_efficiency": round(self.alone_ms / self.worst_ms, 4),
        }  # fmt: skip

    def __str__(self) -> str:
        low, high = (f"{100 * self.alone_ms / ms:.0f} %" for ms in (self.worst_ms, self.best_ms))
        return (
            f"a step of {self.alone_ms:g} ms on one rank takes {self.best_ms:.1f} to {self.worst_ms:.1f} ms: "
            f"{low} to {high} of the speed of as many single ranks"
        )


def host_names(places: Iterable[tuple[str, int]]) -> list[str]:
    """The host of each rank, of their names and local ranks; those of the same name get a number from the second on."""
    seen: dict[tuple[str, int], int] = {}
    names = []
    for name, local_rank in places:
        count = seen[name, local_rank] = seen.get((name, local_rank), 0) + 1
        names.append(name if count == 1 else f"{name} ({count})")
    return names


def rounds_of(hosts: int) -> list[list[tuple[int, int]]]:
    """Each pair of 0..hosts-1 once, in rounds in which each meets one other at most: a round-robin tournament."""
    seats: list[int | None] = list(range(hosts))
    if hosts % 2:
        seats.append(None)  # whoever meets it rests
    half = len(seats) // 2
    rounds = []
    for _ in range(len(seats) - 1):
        pairs = zip(seats[:half], reversed(seats[half:]), strict=True)
        rounds.append([(min(a, b), max(a, b)) for a, b in pairs if a is not None and b is not None])
        seats[1:] = [seats[-1], *seats[1:-1]]
    return rounds


def slow_among(links: Sequence[Link]) -> list[str]:
    """A line for each link that has less than half of the rate of the fastest quarter of its kind: between hosts, or
    inside one. Not of the median: of three hosts one bad one slows four links of six."""
    lines = []
    for is_inside in (False, True):
        kind = [link for link in links if link.is_inside == is_inside]
        fast = sorted(link.bytes_per_s for link in kind)[len(kind) * 3 // 4 :][:1]
        lines += [
            f"slow: {link}: {link.bytes_per_s / 1e9:.3f} GB/s, where a quarter has {usual / 1e9:.3f} or more"
            for usual in fast
            for link in kind
            if link.bytes_per_s < _SLOW * usual
        ]
    return lines
