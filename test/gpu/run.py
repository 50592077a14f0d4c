"""The suites that need a GPU: `make test-gpu`, or `python test/gpu/run.py [--device cpu] [--json FILE]`.

Needs nothing but the installed package and torch. A line for each suite on stdout, figures and output of all in the
JSON file. One GPU will do: two ranks on it go through the host's memory. `--device cpu` tries the suites themselves.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

RANK = Path(__file__).resolve().parent / "rank.py"
SUITES = ("operations", "lists", "streams", "training", "figures", "ratios", "bench")
LIMIT_S = 300


def run(suite: str, ranks: int, device: str) -> dict[str, Any]:
    # The horovodrun of the package that this Python imports, wherever pip has put it.
    launcher = [sys.executable, "-c", "from horovod.runner.launch import run_commandline as run; run()"]
    command = [*launcher, "-np", str(ranks), sys.executable, str(RANK), suite, device]
    if suite == "bench":
        return run_bench([*launcher, "-np", str(ranks), sys.executable, "-m", "horovod.bench", "gpu"], ranks, device)
    begin = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
        code, out, err = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:
        code, out, err = 124, str(late.stdout or ""), f"not done after {LIMIT_S} s\n{late.stderr or ''}"
    figures = [json.loads(line.split("RESULT ", 1)[1]) for line in out.splitlines() if "RESULT " in line]
    ok = code == 0 and len(figures) == 1
    return {
        "suite": suite, "ranks": ranks, "ok": ok, "seconds": round(time.monotonic() - begin, 1),
        "figures": figures[0] if figures else {}, "stderr": err[-4000:], "code": code,
    }  # fmt: skip


def run_bench(command: list[str], ranks: int, device: str) -> dict[str, Any]:
    """All sizes on GPUs; without one only whether it runs. Its figures are the largest busbw of each operation."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        sizes = "4:1G:4" if device == "cuda" else "4,64K"
        done = subprocess.run(
            [*command, "--device", device, "--sizes", sizes, "--json", str(file)],
            capture_output=True, text=True, timeout=2 * LIMIT_S, check=False,
        )  # fmt: skip
        rows = json.loads(file.read_text())["rows"] if file.exists() else []
    best: dict[str, float] = {}
    for row in rows:
        best[row["operation"]] = max(best.get(row["operation"], 0.0), row["busbw_GBps"])
    return {
        "suite": "bench", "ranks": ranks, "ok": done.returncode == 0 and bool(rows), "rows": rows,
        "seconds": round(time.monotonic() - begin, 1), "figures": best, "stderr": done.stderr[-4000:],
        "code": done.returncode,
    }  # fmt: skip


def gpu_count() -> int:
    program = "import torch; print(torch.cuda.device_count())"
    return int(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout or 0)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--json", type=Path, default=Path("gpu-results.json"))
    arguments = parser.parse_args()
    gpus = gpu_count()
    if arguments.device == "cuda" and gpus == 0:
        print("gpu: no GPU that torch can use; nothing was tested")
        return 1
    results = []
    for ranks in sorted({1, 2, max(gpus, 1)}):
        for suite in SUITES:
            result = run(suite, ranks, arguments.device)
            results.append(result)
            word = "ok    " if result["ok"] else "FAILED"
            print(f"{word} {suite} np={ranks} {result['seconds']} s {json.dumps(result['figures'])}", flush=True)
            if not result["ok"]:
                print(result["stderr"][-1500:], flush=True)
    arguments.json.write_text(json.dumps({"device": arguments.device, "gpus": gpus, "results": results}, indent=1))
    return 0 if all(result["ok"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
