#!/usr/bin/env python3
"""Runs the benchmarks, prints tables and writes everything as JSON.

    make bench                                    # all, about ten minutes
    python bench/run.py --only python --rounds 1  # one part

Contenders take turns call by call within the same processes, and the parts take turns in rounds; what is reported is
the median over rounds of the median of a round. Let nothing else run on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
from collections.abc import Callable, Collection
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import host_report
import measure
import report

CPP_SIZES = [4, 1024, 16384, 65536, 262144, 1 << 20, 16 << 20, 64 << 20, 256 << 20]
ROOT = Path(__file__).resolve().parent.parent


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build/release", help="where bench/cpp was built")
    parser.add_argument("--out", type=Path, default=ROOT / "build/bench.json", help="where the JSON goes")
    parser.add_argument("--only", action="append", choices=PARTS, help="this part only; may be repeated")
    parser.add_argument("--rounds", type=int, default=3, help="how often all parts are run")
    parser.add_argument("--seconds", type=float, default=2.0, help="per size and round")
    parser.add_argument("--max-size", type=int, default=256 << 20, help="no payload larger than this many bytes")
    return parser.parse_args()


def fitting(options: argparse.Namespace, *sizes: int) -> list[int]:
    return [size for size in sizes if size <= options.max_size]


def machine() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = [line.split(":")[1].strip() for line in lines if "model name" in line]
    return {
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "cpu": model[0] if model else platform.machine(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_at_start": os.getloadavg()[0],
    }


def cpp(programs: measure.Programs, options: argparse.Namespace) -> dict[str, Any]:
    sizes = fitting(options, *CPP_SIZES)
    entries = measure.cpp_allreduce(programs, 2, sizes, options.seconds)
    return {"cpp": entries + measure.cpp_allreduce(programs, 4, [s for s in sizes if s <= 16 << 20], options.seconds)}


def shared_memory(programs: measure.Programs, options: argparse.Namespace) -> dict[str, Any]:
    by_mpi: dict[str, list[Any]] = {}
    sizes = fitting(options, 1 << 20, 16 << 20, 256 << 20)
    for np, mpi in [(n, name) for n in (2, 4) for name in measure.mpis(n)]:
        by_mpi.setdefault(mpi, []).extend(measure.shared_memory(programs, np, sizes, options.seconds, mpi))
    return {"exchanged_us": measure.exchanged_us(programs, 2, options.seconds), "shared_memory": by_mpi}


def negotiation(programs: measure.Programs, options: argparse.Namespace) -> dict[str, Any]:
    job = partial(measure.negotiation, programs, 2, options.seconds, 4000)
    return {"negotiation": {str(capacity): job(capacity) for capacity in (8192, 1024)}}


def python(programs: measure.Programs, options: argparse.Namespace) -> dict[str, Any]:
    sizes = fitting(options, 4, 1024, 65536, 1 << 20, 16 << 20, 256 << 20)
    return {"python": measure.python_allreduce(programs, 2, options.seconds, sizes)}


def open_mpi(programs: measure.Programs, options: argparse.Namespace) -> dict[str, Any]:
    if why := measure.open_mpi_missing():
        print(f"open-mpi: left out, {why}", file=sys.stderr)
        return {}
    sizes = fitting(options, 4, 1 << 20, 16 << 20, 256 << 20)
    jobs = [measure.open_mpi_allreduce(programs, np, options.seconds, sizes) for np in (2, 4)]
    return {"open_mpi": {"blocking": [entry for job in jobs for entry in job["blocking"]]}}


def default_call(programs: measure.Programs, options: argparse.Namespace) -> dict[str, Any]:
    sizes = fitting(options, 16 << 20, 256 << 20)
    return {"default_call": measure.default_call(programs, 2, 5 * options.seconds, sizes)}


# In the order in which a round has them. Each yields what it adds to the round's results.
PARTS: dict[str, Callable[[measure.Programs, argparse.Namespace], dict[str, Any]]] = {
    "calibration": lambda programs, _: {"calibration": measure.calibration(programs)},
    "cpp": cpp,
    "shared-memory": shared_memory,
    "small-calls": lambda programs, _: {"small_calls": measure.small_calls(programs, 2)},
    "negotiation": negotiation,
    "memory": lambda programs, _: {"memory_mb": measure.memory_mb(programs, 2)},
    "python": python,
    "open-mpi": open_mpi,
    "default-call": default_call,
    "torch-ddp": lambda programs, o: {"torch_ddp": measure.training_steps(programs, 2, 5 * o.seconds)},
    "tensorflow": lambda programs, o: {"tensorflow": measure.tensorflow_steps(programs, 2, 5 * o.seconds)},
    "init": lambda programs, _: {"init_ms": {str(np): measure.init_ms(programs, np) for np in (2, 4, 8)}},
    "launch": lambda programs, _: {
        "launch": {"bare_s": measure.bare_imports_s(programs, 8), "job_s": measure.launch_s(programs, 8)}
    },
    "version": lambda programs, _: {"version_s": measure.version_s(programs)},
}
TABLES: dict[str, Callable[[Any], str]] = {
    "calibration": lambda result: "calibration: " + json.dumps(result),
    "cpp": report.cpp_table,
    "shared_memory": lambda by_mpi: "\n\n".join(host_report.shared_memory_table(*one) for one in by_mpi.items()),
    "small_calls": host_report.small_calls_table,
    "negotiation": host_report.negotiation_table,
    "memory_mb": host_report.memory_table,
    "python": report.python_table,
    "open_mpi": report.open_mpi_table,
    "default_call": report.default_call_table,
    "torch_ddp": report.training_table,
    "tensorflow": report.tensorflow_table,
}


def one_round(programs: measure.Programs, parts: Collection[str], options: argparse.Namespace) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, part in PARTS.items():
        if name in parts:
            result |= part(programs, options)
    return result


def median_of(values: list[Any]) -> Any:
    """The same structure with the median in the place of every number."""
    first = values[0]
    if isinstance(first, dict):
        return {key: median_of([v[key] for v in values]) for key in first}
    if isinstance(first, list):
        return [median_of(list(column)) for column in zip(*values, strict=True)]
    if isinstance(first, int | float):
        return first if all(v == first for v in values) else statistics.median(values)
    return first


def print_tables(results: dict[str, Any]) -> None:
    for name, table in TABLES.items():
        if name in results:
            print(table(results[name]), end="\n\n")
    print(report.goal_table(report.goals(results) + host_report.goals(results)))


def main() -> int:
    options = arguments()
    parts = options.only or PARTS
    try:
        needs_cpp = bool({"calibration", "cpp", "shared-memory"} & set(parts))
        programs = measure.Programs.find(options.build, needs_cpp)
        rounds = [one_round(programs, parts, options) for _ in range(options.rounds)]
    except measure.BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    results = median_of(rounds)
    print_tables(results)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"machine": machine(), "median": results, "rounds": rounds}, indent=1))
    print(f"\nwritten to {options.out}")
    return 0


sys.exit(main())
