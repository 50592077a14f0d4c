"""The suites that need a GPU: `make test-gpu`, or `python test/gpu/run.py [--device cpu] [--suites lists,lost] [--json FILE]`.

Needs torch and the installed package, or what `make carry-gpu` has put into build/gpu. A line for each suite on stdout;
figures and output of all in the JSON file, which is written anew after each. Where it matters, a suite runs twice: by
default, where the host waits for the GPU in each call, and with async completion. One GPU will do: two ranks on it go
through the host's memory, or use NCCL where it takes that. `--device cpu` tries the suites themselves.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax_suites

HERE = Path(__file__).resolve().parent
CARRIED = HERE.parent.parent / "build" / "gpu"
RANK = HERE / "rank.py"
EXAMPLE = HERE.parent.parent / "examples" / "pytorch_synthetic_benchmark.py"
MODES = ("default", "async completion")  # of horovod.bench.gpu, which rank.py begins its session in
# By the modes that they run in; horovod.bench measures both itself.
SUITES = {"operations": 1, "lists": 1, "streams": 2, "results": 2, "capture": 2, "training": 2}
TIMES = {"figures": 2, "ratios": 2, "bench": 1}
NEED_GPU = ("capture",)
# With two ranks on a GPU by NCCL.
TOGETHER = ("operations", "lists", "streams", "results", "training", "lost", "memory", "jax", "jax collectives", "figures")
EXPECTED = {"together memory": "lists on GPUs are cut into shorter ones"}  # on stderr
# They have nothing that NCCL and our kernels do not do.
ON_NCCL = ("lists", "streams", "results", "training", "devices", "lost", "memory", "figures", "jax")
LIMIT_S = 300
# Memory in the order of streams: who uses it before it is there, or after it was given back, is named.
SANITIZER = "--tool memcheck --track-stream-ordered-races all --report-api-errors no --error-exitcode 9".split()


def horovodrun(ranks: int) -> list[str]:
    """That of the package that this Python imports, wherever pip has put it."""
    return [sys.executable, "-c", "from horovod.runner.launch import run_commandline as run; run()", "-np", str(ranks)]


class Runs:
    """Runs suites until the time is over, and keeps what came of them."""

    def __init__(self, options: argparse.Namespace, gpus: int) -> None:
        self.device, self.gpus, self.file = options.device, gpus, options.json
        self.suites: list[str] | None = options.suites.split(",") if options.suites else None  # None: all
        self.limit, self.end = options.limit, time.monotonic() + options.seconds
        self.results: list[dict[str, Any]] = []

    def run(self, suite: str, ranks: int, command: list[str], mode: str = "", **environment: str) -> None:
        """A suite prints `RESULT` and a JSON object, or leaves one in the file FIGURES; the example prints its speed."""
        name = f"{suite}, {mode}" if mode else suite
        begin = time.monotonic()
        limit = min(self.limit, self.end - begin)
        if not self.wants(suite):
            return
        if limit <= 0:
            self.leave_out(name, ranks, "the time is over (--seconds)")
            return
        with tempfile.TemporaryDirectory() as folder:
            figures_file = Path(folder) / "figures.json"
            command = [str(figures_file) if part == "FIGURES" else part for part in command]
            code, out, err = run_for(limit, command, {**os.environ, **environment})
            figures = [json.loads(line.split("RESULT ", 1)[1]) for line in out.splitlines() if "RESULT " in line]
            figures += [{"img_per_s": float(speed)} for speed in re.findall(r"Total img/sec .*: ([0-9.]+)", out)]
            if figures_file.exists():
                figures.append(json.loads(figures_file.read_text()))
        by_host = sorted({line.split(": ", 1)[-1] for line in err.splitlines() if "go through host memory" in line})
        ok = code == 0 and len(figures) == 1
        has_gpus = ranks <= self.gpus or "NCCL_MULTI_RANK_GPU_ENABLE" in environment
        if suite.removeprefix("together ") in ON_NCCL and self.device == "cuda" and has_gpus and by_host:
            ok, err = False, f"{err}\nexpected NCCL and our kernels for all of it"
        if any("share a GPU" in line for line in by_host) and has_gpus:
            ok, err = False, f"{err}\nexpected that NCCL takes all ranks of the GPU"
        if (expected := EXPECTED.get(suite, "")) not in err:
            ok, err = False, f"{err}\nexpected the warning: {expected}"
        self.keep({
            "suite": name, "mode": mode, "ranks": ranks, "ok": ok, "seconds": round(time.monotonic() - begin, 1),
            "figures": figures[0] if figures else {}, "by_host": by_host, "out": out[-8000:], "stderr": err[-8000:],
            "code": code,
        })  # fmt: skip

    def wants(self, suite: str) -> bool:
        return self.suites is None or suite in self.suites or suite.split(maxsplit=1)[0] in self.suites

    def keep(self, result: dict[str, Any]) -> None:
        self.results.append(result)
        shown = {name: value for name, value in result["figures"].items() if name != "rows"}
        if rows := result["figures"].get("rows"):  # the largest busbw of each operation
            shown = {}
            for row in rows:
                what = f"{row['operation']}, {row['mode']}"
                shown[what] = max(shown.get(what, 0.0), row["busbw_GBps"])
        word = "ok    " if result["ok"] else "FAILED"
        print(f"{word} {result['suite']} np={result['ranks']} {result['seconds']} s {json.dumps(shown)}", flush=True)
        if not result["ok"]:
            print(result["stderr"][-2500:], flush=True)
        self.write()

    def leave_out(self, suite: str, ranks: int, why: str) -> None:
        if not self.wants(suite.split(",", maxsplit=1)[0]):
            return
        print(f"-      {suite} np={ranks} left out: {why}", flush=True)
        self.results.append({"suite": suite, "ranks": ranks, "ok": None, "left_out": why, "figures": {}})
        self.write()

    def write(self) -> None:
        self.file.write_text(
            json.dumps({"machine": machine(), "device": self.device, "results": self.results}, indent=1)
        )


def run_for(limit: float, command: list[str], environment: dict[str, str]) -> tuple[int, str, str]:
    """The exit code, stdout and stderr. Ranks that are late say where they are (rank.py), and are ended."""
    pipe = subprocess.PIPE
    environment["HVD_GPU_SUITE_LIMIT"] = str(0.9 * limit)
    with subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as run:
        try:
            out, err = run.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)  # horovodrun's ranks end with it
            try:
                out, err = run.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                return 124, "", f"not done after {limit:.0f} s, and 20 s later something still has its output"
            return 124, out, f"{err}\nnot done after {limit:.0f} s"
    return run.returncode, out, err


def machine() -> dict[str, Any]:
    smi = ["nvidia-smi", "--query-gpu=name,uuid,driver_version,memory.total", "--format=csv,noheader"]
    gpus = subprocess.run(smi, capture_output=True, text=True, check=False).stdout if shutil.which(smi[0]) else ""
    return {"gpus": gpus.splitlines(), "python": sys.version.split()[0], "cores": os.cpu_count()}


def gpu_count() -> int:
    program = "import torch; print(torch.cuda.device_count())"
    return int(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout or 0)


def nccl_version(environment: dict[str, str]) -> int:
    program = "import horovod.torch as hvd; print(hvd.nccl_built())"
    asked = [sys.executable, "-c", program]
    done = subprocess.run(asked, capture_output=True, text=True, env={**os.environ, **environment}, check=False)
    return int(done.stdout or 0)


def why_no_package() -> str:
    program = "import torch; import horovod.torch as hvd; print(hvd.__file__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def rank(suite: str, device: str, mode: str = MODES[0]) -> list[str]:
    return [sys.executable, str(RANK), suite, device, mode]


def run_all(runs: Runs, rank_counts: list[int], nccl_file: Path | None) -> None:
    """What is right first, then what it costs."""
    device = runs.device
    run_suites(runs, SUITES, rank_counts)
    for ranks in rank_counts:
        for mode in MODES:
            jax_suites.run_keras(runs, "jax", ranks, horovodrun(ranks), mode)
        jax_suites.run_collectives(runs, "jax collectives", ranks, horovodrun(ranks))
    if device == "cpu" or runs.gpus > 1:
        runs.run("lost", 2, [*horovodrun(2), *rank("lost", device)])
    if device == "cuda":
        run_on_gpus(runs, nccl_file)
    run_suites(runs, TIMES, rank_counts)


def run_suites(runs: Runs, suites: dict[str, int], rank_counts: list[int]) -> None:
    sizes = "4:1G:4" if runs.device == "cuda" else "4,64K"
    bench = [sys.executable, "-m", "horovod.bench", "gpu"]
    bench += ["--device", runs.device, "--sizes", sizes, "--json", "FIGURES"]
    for ranks in rank_counts:
        for suite, modes in suites.items():
            if suite in NEED_GPU and runs.device == "cpu":
                continue
            for mode in MODES[:modes]:
                ours = bench if suite == "bench" else rank(suite, runs.device, mode)
                runs.run(suite, ranks, [*horovodrun(ranks), *ours], mode if modes > 1 else "")


def run_on_gpus(runs: Runs, nccl_file: Path | None) -> None:
    """What there is nothing like on a CPU."""
    runs.run("example", 1, [*horovodrun(1), sys.executable, str(EXAMPLE), "--fp16", "--num-iters", "3"])
    for ranks in (1, 2):
        if runs.gpus > 1:
            runs.run("devices", ranks, [*horovodrun(ranks), *rank("devices", "cuda")])
        else:
            runs.leave_out("devices", ranks, "there is one GPU, expected 2 or more")
    environment = {"CUDA_VISIBLE_DEVICES": "0", "NCCL_MULTI_RANK_GPU_ENABLE": "1"}
    if nccl_file is not None:
        environment["HOROVOD_NCCL_LIBRARY"] = str(nccl_file.resolve())
    nccl = nccl_version(environment)
    for suite in TOGETHER:
        if nccl < 23003:
            runs.leave_out(f"together {suite}", 2, f"NCCL is {nccl}, expected 23003 or later (--nccl FILE)")
        elif suite == "jax":
            jax_suites.run_keras(runs, f"together {suite}", 2, horovodrun(2), **environment)
        elif suite == "jax collectives":
            jax_suites.run_collectives(runs, f"together {suite}", 2, horovodrun(2), **environment)
        else:
            runs.run(f"together {suite}", 2, [*horovodrun(2), *rank(suite, "cuda")], **environment)
    for mode in MODES:
        if sanitizer := shutil.which("compute-sanitizer"):
            watched = [sanitizer, *SANITIZER, *rank("streams", "cuda", mode)]
            runs.run("sanitizer", 1, watched, mode, PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync")
        else:
            runs.leave_out(f"sanitizer, {mode}", 1, "there is no compute-sanitizer in PATH")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--json", type=Path, default=Path("gpu-results.json"))
    parser.add_argument("--seconds", type=float, default=3600, help="what runs then has failed, what has not begun is left out")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds for a suite")
    parser.add_argument("--suites", default="", help="such as lists,together,'together jax'; default: all")
    parser.add_argument("--nccl", type=Path, help="another NCCL, 2.30.3 or later, for two ranks on one GPU")
    arguments = parser.parse_args()
    if CARRIED.is_dir():
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(CARRIED), os.environ.get("PYTHONPATH")]))
    if why_not := why_no_package():
        print(f"gpu: {sys.executable} has not torch and Horovod ({why_not}); see docs/testing-gpu.md")
        return 1
    gpus = gpu_count()
    if arguments.device == "cuda" and gpus == 0:
        print("gpu: no GPU that torch can use; nothing was tested")
        return 1
    runs = Runs(arguments, gpus)
    run_all(runs, sorted({1, 2, max(gpus, 1)}), arguments.nccl)
    return 0 if all(result["ok"] is not False for result in runs.results) else 1


if __name__ == "__main__":
    sys.exit(main())
