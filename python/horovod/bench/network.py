"""`horovodrun -np 4 -H a:2,b:2 python -m horovod.bench network`: what the links between and inside the hosts carry.

Measures each pair of hosts by a rank on each (4 bytes to and fro, and a rate for each direction), two ranks of each
host, and allreduces by all ranks; names links that are slow beside the others; and says what a training step loses at
the least and at the most. Several pairs are measured at a time, but no host is in two of them. Needs numpy.
"""

from __future__ import annotations

import argparse
import functools
import math
import socket
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from horovod import _env
from horovod.bench.busbw import Row, size_of, sizes_of, write_figures
from horovod.bench.links import Link, Step, host_names, rounds_of, slow_among

if TYPE_CHECKING:
    from horovod.common.process_sets import ProcessSet

__all__ = ["main"]

_MOST_CALLS = 1000


def _times(text: str) -> list[float]:
    try:
        times = [float(part) for part in text.split(",")]
    except ValueError:
        times = []
    if not times or not all(0 < one < math.inf for one in times):
        raise argparse.ArgumentTypeError(f"expected times above 0 such as 100,300, got {text!r}")
    return times


def _time(text: str) -> float:
    return _times(text)[0]


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m horovod.bench network", description=__doc__.split("\n\n")[0])
    made.add_argument("--message", type=size_of, default="4M", help="bytes by which rates are measured; default 4M")
    made.add_argument("--sizes", type=sizes_of, default="4:16M:16", help="of allreduces by all ranks; default 4:16M:16")
    made.add_argument("--gradients", type=size_of, default="100M", help="bytes of a model's gradients; default 100M")
    made.add_argument("--step-ms", type=_times, default="100,300,1000", help="steps on one rank; default 100,300,1000")
    made.add_argument("--seconds", type=_time, default="0.3", help="of each measurement, about; default 0.3")
    made.add_argument("--json", type=Path, help="file for the figures, written by rank 0")
    return made


class Network:
    """The ranks of a session and how long calls between them take. All ranks make the same calls in the same order."""

    def __init__(self, seconds: float) -> None:
        import numpy as np

        from horovod._common import array_objects, arrays, session

        self._np, self._session, self._seconds = np, session, seconds
        self._arrays = arrays.ArrayCollectives("bench")
        self._gather: Callable[[object], list[Any]] = lambda value: array_objects.allgather_object_of(
            self._arrays, value, "bench", 0
        )
        own = (_env.get("HOROVOD_HOSTNAME") or socket.gethostname(), session.local_rank())
        self.host_of = host_names(self._gather(own))

    def allreduce_s(self, size: int, process_set_id: int = 0) -> float:
        """Seconds of an allreduce of `size` bytes, at the slowest rank of the set."""
        array = self._np.zeros(max(size // 4, 1), self._np.float32)
        reduce = functools.partial(self._reduce, array, "bench.sum", self._session.Sum, process_set_id)
        return self._slowest(self._median_s(reduce, process_set_id), process_set_id)

    def links(self, message: int) -> list[Link]:
        """Of each pair of hosts both directions, then of each host that has two ranks."""
        ranks_on: dict[str, list[int]] = {}
        for rank, host in enumerate(self.host_of):
            ranks_on.setdefault(host, []).append(rank)
        hosts = list(ranks_on)
        rounds = [[(ranks_on[hosts[a]][0], ranks_on[hosts[b]][0]) for a, b in pairs] for pairs in rounds_of(len(hosts))]
        rounds.append([(ranks[0], ranks[1]) for ranks in ranks_on.values() if len(ranks) > 1])
        found = [link for pairs in rounds for link in self._measure_at_once(pairs, message)]
        return sorted(found, key=lambda link: (link.is_inside, hosts.index(link.source), hosts.index(link.target)))

    def _measure_at_once(self, pairs: Sequence[tuple[int, int]], message: int) -> list[Link]:
        from horovod.common.process_sets import add_process_set, global_process_set, remove_process_set

        is_all = len(self.host_of) == 2  # of which there is a set already
        sets: list[ProcessSet] = [global_process_set if is_all else add_process_set(pair) for pair in pairs]
        own: list[Link] = []
        for process_set, pair in zip(sets, pairs, strict=True):
            if self._session.rank() in pair:
                own = self._link(pair, process_set.process_set_id or 0, message)
        for process_set in sets:
            remove_process_set(process_set)
        return [link for links in self._gather(own) for link in links]

    def _link(self, pair: tuple[int, int], process_set_id: int, message: int) -> list[Link]:
        """The direction that comes to this rank, one of the pair; inside a host that to the second alone."""
        small_us = self.allreduce_s(4, process_set_id) * 1e6
        array = self._np.zeros(message, self._np.uint8)
        found = []
        for source, target in (pair, pair[::-1]):
            send = functools.partial(self._arrays.broadcast_, [array], ["bench.message"], source, process_set_id)
            took = self._median_s(send, process_set_id)
            link = Link(self.host_of[source], self.host_of[target], small_us, message / took)
            if target == self._session.rank() and (target == pair[1] or not link.is_inside):
                found.append(link)
        return found

    def _median_s(self, call: Callable[[], None], process_set_id: int) -> float:
        """Of calls one after the other, as many on all ranks of the set, as this one sees them."""
        call()  # connects
        wanted = self._seconds / max(self._slowest(_seconds_of(call), process_set_id), 1e-7)
        calls = int(max(1, min(_MOST_CALLS, wanted)))
        return statistics.median(_seconds_of(call) for _ in range(calls))

    def _slowest(self, seconds: float, process_set_id: int) -> float:
        array = self._np.array([seconds])
        self._reduce(array, "bench.slowest", self._session.Max, process_set_id)
        return float(array[0])

    def _reduce(self, array: Any, name: str, op: int, process_set_id: int) -> None:
        self._arrays.allreduce_([array], [name], op, process_set_id=process_set_id)


def _seconds_of(call: Callable[[], None]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def measure(options: argparse.Namespace, show: Callable[[str], None]) -> dict[str, Any]:
    """The figures of this session, the same on all ranks; shown as they come."""
    network = Network(options.seconds)
    ranks = len(network.host_of)
    counts = {host: network.host_of.count(host) for host in network.host_of}
    show(f"# ranks: {ranks} on " + ", ".join(f"{host} {count}" for host, count in counts.items()))
    links = network.links(options.message)
    if links:
        show(f"# {'link':<40} {'4 bytes us':>12} {'GB/s':>9}")
    for link in links:
        show(f"  {link!s:<40} {link.small_us:>12.1f} {link.bytes_per_s / 1e9:>9.3f}")
    for line in slow_among(links):
        show(line)
    show(f"# {'allreduce of all ranks, bytes':<40} {'time us':>12} {'busbw GB/s':>11}")
    rows = []
    for size in options.sizes:
        rows.append(Row("default", "allreduce", size, network.allreduce_s(size) * 1e6, ranks))
        show(f"  {size:>40} {rows[-1].time_us:>12.1f} {rows[-1].busbw:>11.3f}")
    reduction_ms = network.allreduce_s(options.gradients) * 1e3
    show(f"# {options.gradients} bytes of gradients take {reduction_ms:.1f} ms")
    steps = [Step(alone_ms, reduction_ms) for alone_ms in options.step_ms]
    for step in steps:
        show(f"  {step}")
    return {
        "ranks": ranks, "hosts": counts, "message_bytes": options.message, "links": [link.as_json() for link in links],
        "allreduce": [row.as_json() for row in rows], "gradients_bytes": options.gradients,
        "gradients_ms": round(reduction_ms, 3), "steps": [step.as_json() for step in steps],
    }  # fmt: skip


def main(arguments: list[str]) -> int:
    options = parser().parse_args(arguments)
    try:
        from horovod._common import array_objects, session  # noqa: F401  numpy, too
    except ImportError as missing:
        print(f"horovod.bench network: {missing}", file=sys.stderr)
        return 1
    session.basics.init(process_sets="dynamic")

    def show(line: str) -> None:
        if session.basics.rank() == 0:
            print(line, flush=True)

    figures = measure(options, show)
    if options.json is not None and session.basics.rank() == 0:
        write_figures(options.json, figures)
    session.basics.shutdown()
    return 0
