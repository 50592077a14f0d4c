"""From measurements to the table that people read. No programs are started here."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

IN_PLACE = "in place, Sum"  # what the other large calls are compared with
# The most that each may cost of it. An allgather of as many bytes moves half of them.
DEFAULT_CALL_LIMITS = {
    "in place, Average": 1.02,
    "in place, prescale": 1.02,
    "new tensor": 1.1,
    "new tensor, kept": 1.1,
    "allgather": 0.55,
    "TensorFlow": 1.1,
    "TensorFlow, allgather": 0.55,
}
# The most that a blocking allreduce of private tensors may take of Open MPI's time, by ranks and bytes.
OPEN_MPI_LIMITS = {
    (2, 1 << 20): 1.0,
    (2, 16 << 20): 1 / 1.5,
    (2, 256 << 20): 1 / 1.5,
    (4, 1 << 20): 1.0,
    (4, 16 << 20): 1 / 2,
    (4, 256 << 20): 1 / 2,
}


@dataclass(frozen=True)
class Goal:
    """One promise: the measured value must not exceed the limit."""

    name: str
    value: float
    limit: float
    unit: str
    note: str = ""

    @property
    def met(self) -> bool:
        return self.value <= self.limit

    def row(self) -> list[str]:
        verdict = "yes" if self.met else "NO"
        return [self.name, f"{self.value:.3g} {self.unit}", f"<= {self.limit:.3g} {self.unit}", verdict, self.note]


def size_name(size: int) -> str:
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size // factor} {unit}"
    return f"{size} B"


def busbw(size: int, np: int, us: float) -> float:
    """GB/s as nccl-tests count them."""
    return 2 * (np - 1) / np * size / us / 1e3


def table(header: list[str], rows: list[list[str]]) -> str:
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = [header, ["-" * w for w in widths], *rows]
    return "\n".join("| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |" for line in lines)


def cpp_table(entries: list[dict[str, Any]]) -> str:
    header = ["C++, size", "np", "ours us", "with TLS us", "stock Gloo us", "bound us"]
    header += ["ours GB/s", "stock / ours", "% of bound"]
    rows = []
    for entry in entries:
        ours, stock, bound = (entry["p50_us"][arm] for arm in ("ours", "stock", "bound"))
        tls = entry["p50_us"].get("ours_tls")
        times = [f"{us:.1f}" if us else "" for us in (ours, tls, stock, bound)]
        ratios = [f"{stock / ours:.2f}", f"{100 * bound / ours:.0f}"]
        rate = f"{busbw(entry['size'], entry['np'], ours):.3f}"
        rows.append([size_name(entry["size"]), str(entry["np"]), *times, rate, *ratios])
    return table(header, rows)


def python_table(result: dict[str, Any]) -> str:
    header = ["Python", "np", "ours us", "torch gloo us", "torch / ours"]
    named = [(f"allreduce_ {size_name(e['size'])}", e) for e in result["blocking"]]
    named += [("allreduce 4 B", result["single"]), (f"{result['burst']['tensors']} x 4 B, async", result["burst"])]
    rows = []
    for name, entry in named:
        ours, theirs = entry["p50_us"]["ours"], entry["p50_us"]["torch"]
        rows.append([name, str(entry["np"]), f"{ours:.1f}", f"{theirs:.1f}", f"{theirs / ours:.2f}"])
    return table(header, rows)


def open_mpi_table(result: dict[str, Any]) -> str:
    header = ["private tensors", "np", "ours us", "Open MPI us", "torch gloo us", "ours GB/s", "Open MPI / ours"]
    rows = []
    for entry in result["blocking"]:
        ours, mpi, gloo = (entry["p50_us"][arm] for arm in ("ours", "mpi", "torch"))
        times = [f"{us:.1f}" for us in (ours, mpi, gloo)]
        rate = f"{busbw(entry['size'], entry['np'], ours):.2f}"
        rows.append([f"allreduce_ {size_name(entry['size'])}", str(entry["np"]), *times, rate, f"{mpi / ours:.2f}"])
    return table(header, rows)


def default_call_table(result: dict[str, Any]) -> str:
    header = ["large tensors, np=2", "size", "ms", "x in place", "CPU ms", "x in place", "page faults"]
    rows = []
    for entry in result["sizes"]:
        reference = entry["arms"][IN_PLACE]
        for name, arm in entry["arms"].items():
            columns = [f"{arm['us'] / 1e3:.1f}", f"{arm['us'] / reference['us']:.2f}"]
            columns += [f"{arm['cpu_us'] / 1e3:.1f}", f"{arm['cpu_us'] / reference['cpu_us']:.2f}"]
            rows.append([name, size_name(entry["size"]), *columns, f"{arm['faults']:.0f}"])
    return table(header, rows)


def training_table(result: dict[str, Any]) -> str:
    header = ["training step, np=2", "local ms", "ours ms", "torch DDP ms", "ours - local", "DDP - local"]
    rows = []
    names = {"resnet50": f"{result['tensors']} tensors, {result['bytes'] / 1e6:.0f} MB", "small": "1000 x 4 B"}
    arms = {"": ("local", "ours", "ddp"), ", views": ("local_kept", "ours_views", "ddp_views")}
    for (key, name), (how, contenders) in itertools.product(names.items(), arms.items()):
        local, ours, ddp = (result[key][contender]["step_ms"] for contender in contenders)
        rows.append([name + how, *(f"{ms:.1f}" for ms in (local, ours, ddp, ours - local, ddp - local))])
    return table(header, rows)


def tensorflow_table(result: dict[str, Any]) -> str:
    header = ["TensorFlow and torch, np=2", "tf.function", "horovod.torch"]
    us, ms, chain = result["single_us"], result["step_ms"], result["chain"]
    return table(
        header,
        [
            ["one allreduce 4 B, us", f"{us['function']:.1f}", f"{us['torch']:.1f}"],
            ["an empty function, us", f"{us['empty_function']:.1f}", ""],
            [
                f"each of {chain} that wait for each other, us",
                f"{_chained(us, chain):.1f}",
                f"{us['torch_chain'] / chain:.1f}",
            ],
            ["ResNet-50 gradients, step, ms", f"{ms['tensorflow']:.1f}", f"{ms['ours']:.1f}"],
            ["the same without Horovod, ms", f"{ms['tensorflow_local']:.1f}", f"{ms['local']:.1f}"],
        ],
    )


def _chained(us: dict[str, float], chain: int) -> float:
    """Microseconds of an allreduce among many in one tf.function."""
    return (us["chain"] - us["empty_function"]) / chain


def goals(results: dict[str, Any]) -> list[Goal]:
    """The promises of docs/benchmarks.md that the measurements at hand can tell about."""
    found: list[Goal] = []
    if python := results.get("python"):
        for entry in python["blocking"]:
            if entry["size"] in (16 << 20, 256 << 20):
                ratio = entry["p50_us"]["ours"] / entry["p50_us"]["torch"]
                found.append(Goal(f"{size_name(entry['size'])} in Python, np=2, over torch gloo", ratio, 1.0, "x"))
        burst = python["burst"]["p50_us"]
        found.append(Goal("1000 x 4 B, cached, async, alone", burst["ours_alone"] / 1e3, 1.5, "ms"))
        found.append(Goal("the same between turns of torch gloo", burst["ours"] / 1e3, 4, "ms"))
    for entry in results.get("open_mpi", {}).get("blocking", []):
        if limit := OPEN_MPI_LIMITS.get((entry["np"], entry["size"])):
            ratio = entry["p50_us"]["ours"] / entry["p50_us"]["mpi"]
            found.append(Goal(f"{size_name(entry['size'])}, np={entry['np']}, over Open MPI", ratio, limit, "x"))
    for entry in results.get("default_call", {}).get("sizes", []):
        for name, limit in DEFAULT_CALL_LIMITS.items():
            if name in entry["arms"]:
                ratio = entry["arms"][name]["us"] / entry["arms"][IN_PLACE]["us"]
                found.append(Goal(f"{name}, {size_name(entry['size'])}, over the sum in place", ratio, limit, "x"))
    if ddp := results.get("torch_ddp"):
        local, ours, theirs = (ddp["resnet50"][arm]["step_ms"] for arm in ("local", "ours", "ddp"))
        found.append(Goal("ResNet-50 gradients, np=2, over torch DDP", (ours - local) / (theirs - local), 1.0, "x"))
        found.append(Goal("ResNet-50 gradients, np=2, beyond a local step", ours - local, 30, "ms"))
        kept, views = (ddp["resnet50"][arm]["step_ms"] for arm in ("local_kept", "ours_views"))
        found.append(Goal("the same as views of buckets", views - kept, 12, "ms"))
        found.append(Goal("optimizer hook and enqueue, per parameter", ddp["hook_us"], 5, "us"))
    if tensorflow := results.get("tensorflow"):
        us, ms = tensorflow["single_us"], tensorflow["step_ms"]
        beyond = us["function"] - us["empty_function"] - us["torch"]
        found.append(Goal("one allreduce in a tf.function, beyond its call and horovod.torch", beyond, 30, "us"))
        beyond = (ms["tensorflow"] - ms["tensorflow_local"]) / (ms["ours"] - ms["local"])
        found.append(Goal("ResNet-50 gradients in a tf.function, over torch", beyond, 1.2, "x"))
    for entry in results.get("cpp", []):
        if entry["size"] in (16 << 20, 256 << 20) and entry["np"] == 2:
            ratio = entry["p50_us"]["ours"] / entry["p50_us"]["stock"]
            found.append(Goal(f"{size_name(entry['size'])} in C++, np=2, over stock Gloo", ratio, 1.0, "x"))
    for np, limit in (("2", 50), ("4", 100), ("8", 300)):
        if np in results.get("init_ms", {}):
            found.append(Goal(f"hvd.init(), np={np}", results["init_ms"][np], limit, "ms"))
    if launch := results.get("launch"):
        found.append(Goal("job of 8 that only calls init()", launch["job_s"], launch["bare_s"] + 1, "s"))
    if "version_s" in results:
        found.append(Goal("horovodrun --version", results["version_s"] * 1e3, 20, "ms"))
    return found


def goal_table(found: list[Goal]) -> str:
    return table(["goal", "measured", "limit", "met", ""], [goal.row() for goal in found])
