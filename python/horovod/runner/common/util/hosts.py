"""Host lists, and which rank is where: as horovodrun places ranks."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "INVALID_SLOT_INFO",
    "HostInfo",
    "SlotInfo",
    "get_host_assignments",
    "parse_host_files",
    "parse_hosts",
    "parse_hosts_and_slots",
]

_HOST = re.compile(r"([\w.-]+):(\d+)")


@dataclass
class HostInfo:
    """A host, by its `hostname`, and how many ranks it takes, its `slots`."""

    hostname: str
    slots: int

    @staticmethod
    def from_string(host_string: str) -> HostInfo:
        """Reads a `host_string` such as `a:2`, `name:slots`. ValueError if it is something else."""
        match = _HOST.fullmatch(host_string.strip())
        if match is None:
            raise ValueError(f"invalid host {host_string!r}, expected name:slots such as worker-0:2")
        return HostInfo(match[1], int(match[2]))


@dataclass
class SlotInfo:
    """Where `rank` of `size` is: `hostname`, `local_rank` of `local_size` there, `cross_rank` of `cross_size` hosts."""

    hostname: str
    rank: int
    local_rank: int
    cross_rank: int
    size: int
    local_size: int
    cross_size: int

    def to_response_string(self) -> str:
        """The numbers as text: `rank,size,local_rank,local_size,cross_rank,cross_size`."""
        numbers = (self.rank, self.size, self.local_rank, self.local_size, self.cross_rank, self.cross_size)
        return ",".join(map(str, numbers))


INVALID_SLOT_INFO = SlotInfo("", -1, -1, -1, -1, -1, -1)


def parse_hosts(hosts_string: str) -> list[HostInfo]:
    """Reads a `hosts_string` such as `a:4,b:4`. ValueError names an entry that is no `name:slots`."""
    return [HostInfo.from_string(entry) for entry in hosts_string.split(",")]


def parse_hosts_and_slots(hosts: str) -> tuple[list[str], dict[str, int]]:
    """The names of `hosts`, such as `a:4,b:4`, in order, and the slots of each."""
    infos = parse_hosts(hosts)
    return [info.hostname for info in infos], {info.hostname: info.slots for info in infos}


def parse_host_files(filename: str) -> str:
    """The host file `filename`, lines of `name slots=n`, as `name:n,...`. ValueError names file and line."""
    entries = []
    with open(filename, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            words = line.partition("#")[0].split(maxsplit=1)
            if not words:
                continue
            slots = words[1].partition("=")[2].strip() if len(words) == 2 else ""
            if not slots.isdecimal():
                raise ValueError(f"{filename}:{number}: {line.strip()!r}, expected a line such as worker-0 slots=2")
            entries.append(f"{words[0]}:{slots}")
    return ",".join(entries)


def get_host_assignments(
    hosts: Sequence[HostInfo], min_num_proc: int, max_num_proc: int | None = None
) -> list[SlotInfo]:
    """Fills the hosts in order with consecutive ranks, up to `max_num_proc`; None: all slots.

    Returns one entry a rank, by rank. ValueError if there are fewer than `min_num_proc` slots.
    """
    limit = sum(host.slots for host in hosts) if max_num_proc is None else max_num_proc
    places: list[tuple[int, int]] = []  # by rank: index of the host, local rank
    for index, host in enumerate(hosts):
        places += [(index, local) for local in range(min(host.slots, limit - len(places)))]
    if len(places) < min_num_proc:
        raise ValueError(f"{min_num_proc} processes are asked for, and the hosts have {len(places)} slots")
    local_size: dict[int, int] = defaultdict(int)
    across: dict[int, list[int]] = defaultdict(list)  # by local rank: the hosts that have it, in order
    for index, local in places:
        local_size[index] += 1
        across[local].append(index)
    return [
        SlotInfo(
            hostname=hosts[index].hostname,
            rank=rank,
            local_rank=local,
            cross_rank=across[local].index(index),
            size=len(places),
            local_size=local_size[index],
            cross_size=len(across[local]),
        )
        for rank, (index, local) in enumerate(places)
    ]
