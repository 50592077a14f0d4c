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
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import host_report
import measure
import report

PARTS = [
    "calibration",
    "cpp",
    "shared-memory",
    "small-calls",
    "negotiation",
    "memory",
    "python",
    "open-mpi",
    "default-call",
    "torch-ddp",
    "tensorflow",
    "init",
    "launch",
    "version",
]
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


def one_round(programs: measure.Programs, parts: list[str], options: argparse.Namespace) -> dict[str, Any]:
    result: dict[str, Any] = {}
    sizes = [s for s in CPP_SIZES if s <= options.max_size]
    if "calibration" in parts:
        result["calibration"] = measure.calibration(programs)
    if "cpp" in parts:
        result["cpp"] = measure.cpp_allreduce(programs, 2, sizes, options.seconds)
        result["cpp"] += measure.cpp_allreduce(programs, 4, [s for s in sizes if s <= 16 << 20], options.seconds)
    result |= host_parts(programs, parts, options)
    if "python" in parts:
        python_sizes = [s for s in (4, 1024, 65536, 1 << 20, 16 << 20, 256 << 20) if s <= options.max_size]
        result["python"] = measure.python_allreduce(programs, 2, options.seconds, python_sizes)
    if "open-mpi" in parts and (why := measure.open_mpi_missing()):
        print(f"open-mpi: left out, {why}", file=sys.stderr)
    elif "open-mpi" in parts:
        mpi_sizes = [s for s in (4, 1 << 20, 16 << 20, 256 << 20) if s <= options.max_size]
        jobs = [measure.open_mpi_allreduce(programs, np, options.seconds, mpi_sizes) for np in (2, 4)]
        result["open_mpi"] = {"blocking": [entry for job in jobs for entry in job["blocking"]]}
    if "default-call" in parts:
        large = [s for s in (16 << 20, 256 << 20) if s <= options.max_size]
        result["default_call"] = measure.default_call(programs, 2, 5 * options.seconds, large)
    if "torch-ddp" in parts:
        result["torch_ddp"] = measure.training_steps(programs, 2, 5 * options.seconds)
    if "tensorflow" in parts:
        result["tensorflow"] = measure.tensorflow_steps(programs, 2, 5 * options.seconds)
    if "init" in parts:
        result["init_ms"] = {str(np): measure.init_ms(programs, np) for np in (2, 4, 8)}
    if "launch" in parts:
        result["launch"] = {"bare_s": measure.bare_imports_s(programs, 8), "job_s": measure.launch_s(programs, 8)}
    if "version" in parts:
        result["version_s"] = measure.version_s(programs)
    return result


def host_parts(programs: measure.Programs, parts: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """What happens inside one host."""
    result: dict[str, Any] = {}
    if "shared-memory" in parts:
        sizes = [s for s in (1 << 20, 16 << 20, 256 << 20) if s <= options.max_size]
        result["exchanged_us"] = measure.exchanged_us(programs, 2, options.seconds)
        for np, mpi in [(n, name) for n in (2, 4) for name in measure.mpis(n)]:
            entries = measure.shared_memory(programs, np, sizes, options.seconds, mpi)
            result.setdefault("shared_memory", {}).setdefault(mpi, []).extend(entries)
    if "small-calls" in parts:
        result["small_calls"] = measure.small_calls(programs, 2)
    if "negotiation" in parts:
        job = partial(measure.negotiation, programs, 2, options.seconds, 4000)
        result["negotiation"] = {str(capacity): job(capacity) for capacity in (8192, 1024)}
    if "memory" in parts:
        result["memory_mb"] = measure.memory_mb(programs, 2)
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
    if "calibration" in results:
        print("calibration: " + json.dumps(results["calibration"]), end="\n\n")
    if "cpp" in results:
        print(report.cpp_table(results["cpp"]), end="\n\n")
    for mpi, entries in results.get("shared_memory", {}).items():
        print(host_report.shared_memory_table(mpi, entries), end="\n\n")
    if "small_calls" in results:
        print(host_report.small_calls_table(results["small_calls"]), end="\n\n")
    if "negotiation" in results:
        print(host_report.negotiation_table(results["negotiation"]), end="\n\n")
    if "memory_mb" in results:
        print(host_report.memory_table(results["memory_mb"]), end="\n\n")
    if "python" in results:
        print(report.python_table(results["python"]), end="\n\n")
    if "open_mpi" in results:
        print(report.open_mpi_table(results["open_mpi"]), end="\n\n")
    if "default_call" in results:
        print(report.default_call_table(results["default_call"]), end="\n\n")
    if "torch_ddp" in results:
        print(report.training_table(results["torch_ddp"]), end="\n\n")
    if "tensorflow" in results:
        print(report.tensorflow_table(results["tensorflow"]), end="\n\n")
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
