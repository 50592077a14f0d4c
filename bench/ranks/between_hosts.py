#!/usr/bin/env python3
"""Collectives between two hosts whose network is slow, and what they take at best.

    bench/ranks/between_hosts.py [--gbit 1] [--ranks 2] [--mib 16] [--calls 10]
    bench/ranks/between_hosts.py --wire [--gbit 0.25] [--delay-ms 0.6] [--hosts 4] [--ranks 2] [--mib 16] [--calls 10]
    bench/ranks/between_hosts.py --algorithms build/dev/bench/cpp/allreduce_bench [--gbit 0.25] [--delay-ms 2.5]
                                 [--hosts 2,4,8] [--calls 10]
    bench/ranks/between_hosts.py --connections 1,4 [--gbit 1 | --stream-gbit 0.5] [--ranks 1] [--mib 16] [--calls 10]
    bench/ranks/between_hosts.py --first-alltoall [--delay-ms 10] [--hosts 16] [--calls 10]

The hosts are network namespaces, joined by a pair of interfaces with a token bucket at each end. Ranks are dealt out to
them in a row, then in turns. Needs what the tests with several hosts need (test/e2e/hosts/README.md), and tc.
--wire: among so many hosts on a wire with a delay (slow_wire.py), ranks in a row.
--algorithms: the ways of an allreduce and of a broadcast in turns, among hosts of one rank on such a wire,
as multiples of the first one's time.
--connections: several connections for a pair of ranks (HOROVOD_SOCKETS_PER_PEER), a job for each number, three times in
turns, ranks in a row, each after as many allreduces as those of 0 need to find the number. --stream-gbit limits each
connection instead of all together.
--first-alltoall: what the first alltoall of a job takes, which makes the connections, and the second, until the slowest
rank has it: among hosts of one rank on such a wire.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

TESTS = Path(__file__).resolve().parents[2] / "test/e2e/hosts"
GOODPUT = 0.957  # of the nominal rate: what headers leave
TRIAL_CALLS = 3 * 18  # of runtime/collectives/connection_trial.h, at most

SERVER = """
import json, sys
from horovod.runner.rendezvous import RendezvousServer
with RendezvousServer(int(sys.argv[1]), listen=sys.argv[2]) as server:
    print(json.dumps([server.environment(rank) for rank in range(int(sys.argv[1]))]), flush=True)
    sys.stdin.read()
"""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gbit", type=float, default=1.0, help="rate of each direction; 0: no limit")
    parser.add_argument("--ranks", type=int, default=2, help="on each host")
    parser.add_argument("--mib", type=int, default=16, help="of a tensor (gathers: of all ranks)")
    parser.add_argument("--calls", type=int, default=10)
    parser.add_argument("--wire", action="store_true", help="of slow_wire.py")
    parser.add_argument("--algorithms", metavar="PROGRAM", help="compare these by allreduce_bench instead")
    parser.add_argument("--connections", metavar="NUMBERS", help="compare these numbers for each pair")
    parser.add_argument("--stream-gbit", type=float, help="rate of each connection, in place of --gbit")
    parser.add_argument("--first-alltoall", action="store_true", help="measure this instead")
    parser.add_argument("--delay-ms", type=float, default=2.5, help="of the wire, one way")
    parser.add_argument("--hosts", default="2,4,8", help="numbers of hosts")
    parser.add_argument("--settle", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def rank(options: argparse.Namespace) -> None:
    """What one rank does: rank 0 prints the median of each operation in milliseconds."""
    import torch

    import horovod.torch as hvd

    hvd.init()
    if options.first_alltoall:
        times = [alltoall_ms(hvd, torch) for _ in range(2)]
        slowest = [hvd.allreduce(torch.tensor(one), op=hvd.Max).item() for one in times]
        if hvd.rank() == 0:
            print(json.dumps(dict(zip(("first", "second"), slowest, strict=True))), flush=True)
        return
    whole = torch.zeros(options.mib << 18)
    part = torch.zeros(whole.numel() // hvd.size())
    operations: dict[str, Callable[[], object]] = {
        "allreduce": lambda: hvd.allreduce_(whole, op=hvd.Sum, name="allreduce"),
        "reducescatter": lambda: hvd.reducescatter(whole, op=hvd.Sum, name="reducescatter"),
        "allgather": lambda: hvd.allgather(part, name="allgather"),
        "broadcast": lambda: hvd.broadcast_(whole, root_rank=0, name="broadcast"),
    }
    for _ in range(options.settle):
        operations["allreduce"]()
    medians = {}
    for name, operation in operations.items():
        times = []
        for _ in range(options.calls + 1):
            hvd.barrier()
            start = time.perf_counter()
            operation()
            hvd.barrier()
            times.append(time.perf_counter() - start)
        medians[name] = statistics.median(times[1:]) * 1e3
    if hvd.rank() == 0:
        print(json.dumps(medians), flush=True)


def alltoall_ms(hvd: ModuleType, torch: ModuleType) -> float:
    start = time.perf_counter()
    hvd.alltoall(torch.ones(hvd.size()), name="alltoall")
    return (time.perf_counter() - start) * 1e3


def bounds(options: argparse.Namespace, hosts: int) -> dict[str, float]:
    """In milliseconds, with a limit: all but a host's share leave it to be reduced, and come to it to be gathered."""
    if options.gbit == 0:
        return {}
    whole = (options.mib << 20) / (options.gbit / 8 * 1e9 * GOODPUT) * 1e3
    others = whole * (hosts - 1) / hosts
    return {"allreduce": 2 * others, "reducescatter": others, "allgather": others, "broadcast": whole}


def main() -> int:
    options = parse_arguments()
    if options.rank:
        rank(options)
        return 0
    sys.path.insert(0, str(TESTS))
    from netns import Namespace, limit_all, limit_streams, why_impossible

    if why := why_impossible():
        print(f"between_hosts: {why}", file=sys.stderr)
        return 1
    if options.algorithms or options.first_alltoall or options.wire:
        for count in map(int, options.hosts.split(",")):
            on_wire(options, [Namespace(f"h{number}") for number in range(count)])
        return 0
    hosts = [Namespace("a"), Namespace("b")]
    try:
        hosts[0].shell(f"ip link add data0 type veth peer name data0 netns {hosts[1].keeper.pid}")
        for number, host in enumerate(hosts, 1):
            host.shell(f"ip address add 10.77.0.{number}/24 dev data0; ip link set data0 up")
            if options.stream_gbit:
                host.shell(limit_streams("data0", options.stream_gbit, connects=number == 2))
            elif options.gbit > 0:
                host.shell(limit_all("data0", options.gbit))
        if options.connections:
            compare_connections(options, [host for host in hosts for _ in range(options.ranks)])
            return 0
        print(f"load {os.getloadavg()[0]:.1f}; milliseconds, at best: {bounds(options, 2)}")
        for placement in ("in a row", "in turns"):
            dealt = [hosts[r // options.ranks if placement == "in a row" else r % 2] for r in range(2 * options.ranks)]
            print(f"{placement}: {one_job(dealt, collectives(options))}")
    finally:
        for host in hosts:
            host.close()
    return 0


ALGORITHMS = {  # and from 8 KiB to what, by doubling
    "ring,exchange,halving": 2 << 20,
    "chain,tree": 4 << 20,
}


def compare_connections(options: argparse.Namespace, dealt: list) -> None:  # type: ignore[type-arg]
    for _ in range(3):
        for number in options.connections.split(","):
            settled = [*collectives(options), "--settle", str(TRIAL_CALLS)]
            said = one_job(dealt, settled, {"HOROVOD_SOCKETS_PER_PEER": number})
            print(f"{number} connections, load {os.getloadavg()[0]:.1f}: {said}", flush=True)


def compare_algorithms(options: argparse.Namespace, hosts: list) -> None:  # type: ignore[type-arg]
    pids = [host.keeper.pid for host in hosts]
    for arms, largest in ALGORITHMS.items():
        sizes = [size for bits in range(13, 32) if (size := 1 << bits) <= largest]
        command = [options.algorithms, "--np", str(len(hosts)), "--netns", ",".join(map(str, pids))]
        command += ["--arms", arms, "--sizes", ",".join(map(str, sizes))]
        command += ["--seconds", "0", "--samples", str(options.calls)]
        lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
        print_ratios(len(hosts), arms.split(","), [json.loads(line) for line in lines])


def print_ratios(hosts: int, arms: list[str], rows: list[dict[str, float]]) -> None:
    print(f"{hosts} hosts, load {os.getloadavg()[0]:.1f}: milliseconds of {arms[0]}; {', '.join(arms[1:])} / {arms[0]}")
    for begin in range(0, len(rows), len(arms)):
        first, *others = rows[begin : begin + len(arms)]
        ratios = "  ".join(f"{other['p50_us'] / first['p50_us']:.2f}" for other in others)
        print(f"  {int(first['size']) >> 10:5} KiB  {first['p50_us'] / 1e3:6.1f}  {ratios}", flush=True)


def collectives(options: argparse.Namespace) -> list[str]:
    return ["--mib", str(options.mib), "--calls", str(options.calls)]


def on_wire(options: argparse.Namespace, hosts: list) -> None:  # type: ignore[type-arg]
    """Measures what is asked for among hosts that a slow wire joins, and closes them."""
    from slow_wire import Wire

    try:
        wire = Wire([host.keeper.pid for host in hosts], options.gbit * 1e9, options.delay_ms / 1e3)
        for number, host in enumerate(hosts, 1):
            host.shell(wire.up(number))
        with wire.carrying():
            if options.algorithms:
                return compare_algorithms(options, hosts)
            if options.first_alltoall:
                said: object = [one_job(hosts, ["--first-alltoall"]) for _ in range(options.calls)]
            else:
                dealt = [host for host in hosts for _ in range(options.ranks)]
                said = one_job(dealt, collectives(options)), "at best", bounds(options, len(hosts))
        print(f"{len(hosts)} hosts, load {os.getloadavg()[0]:.1f}, milliseconds: {said}", flush=True)
    finally:
        for host in hosts:
            host.close()


def one_job(  # type: ignore[type-arg]
    hosts: list, arguments: list[str], variables: dict[str, str] | None = None
) -> dict[str, float]:
    """The hosts are those of rank 0, 1, ..., of which the first is 10.77.0.1."""
    serve = hosts[0].enter(sys.executable, "-c", SERVER, str(len(hosts)), "10.77.0.1")
    server = subprocess.Popen(serve, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdout is not None
    environments = json.loads(server.stdout.readline())
    command = [sys.executable, __file__, "--rank", *arguments]
    shared = {**os.environ, **(variables or {})}
    ranks = [
        subprocess.Popen(host.enter(*command), env={**shared, **environment}, stdout=subprocess.PIPE, text=True)
        for host, environment in zip(hosts, environments, strict=True)
    ]
    said = [process.communicate(timeout=600)[0] for process in ranks]
    server.communicate()
    return {name: round(value, 1) for name, value in json.loads(said[0]).items()}


if __name__ == "__main__":
    sys.exit(main())
